// Package boottime has a clock that nobody can set and that runs while the machine is suspended.
// Package time has none: on Linux its monotonic clock stops during a suspend.
package boottime
