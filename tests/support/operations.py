"""The operations of TrivialAugment and RandAugment, in order; written out, not read from the library."""

TRIVIAL_AUGMENT = [
    "Identity",
    "AutoContrast",
    "Equalize",
    "Rotate",
    "Solarize",
    "Color",
    "Posterize",
    "Contrast",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
]
