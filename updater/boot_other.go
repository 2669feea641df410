//go:build !linux

package updater

import "time"

// thisBoot returns "": no identity of a boot is known for this system.
func thisBoot() (id string, since time.Duration) { return "", 0 }

// SinceBoot returns 0: no clock that runs during a suspend is known for this system. Two
// readings then never show a suspend.
func SinceBoot() time.Duration { return 0 }
