"""How much noise: the std that settings ask for, systems at a target budget, and `vflpriv calibrate`."""
