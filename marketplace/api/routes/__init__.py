"""The API's routes, a file a noun. They translate, and decide nothing."""
