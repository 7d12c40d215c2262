"""Many trainings for one answer: published tables trained again, and settings chosen on validation records."""
