//go:build !race

package test

const raceFactor = 1
