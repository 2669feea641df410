//go:build !linux

package boottime

import "time"

// Since returns 0: no clock that runs during a suspend is known for this system. Two
// readings then never show a suspend.
func Since() time.Duration { return 0 }
