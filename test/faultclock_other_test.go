//go:build !linux || !amd64

package test

import "testing"

// clockFaults needs a tracer, see faultclock_linux_amd64_test.go.
func clockFaults() map[string]fault { return nil }

func serveWithWrongClock() bool { return false }

// forgiving is for rows that are not here.
type forgiving struct{ *testing.T }

func (c *cell) withWrongClock() { c.t.Fatal("there is no such row here") }
