//go:build race

package test

// raceFactor is how much more memory the race detector takes: "typically 5-10x"
// (go.dev/doc/articles/race_detector, Runtime Overhead).
const raceFactor = 5
