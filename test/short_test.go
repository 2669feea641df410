package test

import "testing"

// skipIfShort skips a test that takes seconds on any machine, mostly by waiting,
// when only a quick run is wanted. The reason says what takes the time.
func skipIfShort(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: " + reason)
	}
}
