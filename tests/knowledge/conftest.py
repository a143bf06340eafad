"""Here so that the helpers beside it can be imported by the tests below."""
