package main

func init() { paths["v4"] = "/v4/threatLists?alt=proto" }
