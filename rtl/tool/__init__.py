"""The commands behind `./run rtl`."""
