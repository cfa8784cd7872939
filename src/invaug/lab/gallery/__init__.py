"""`invaug gallery`: a page that shows the transformations of a set on images, and what the chain of a run kept."""
