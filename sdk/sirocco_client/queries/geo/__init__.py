"""Regions in other people's forms, compiled to rectangles and polygons before they are sent."""
