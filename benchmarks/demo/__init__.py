"""The demo: distil a real sentence encoder into a smaller and into a static one, on text that every Python ships."""
