//go:build !linux

package updater

import "time"

// sinceBoot returns 0: no clock that runs during a suspend is known for this system. Two
// readings then never show a suspend. sleepUntil still notices one by the wall clock.
func sinceBoot() time.Duration { return 0 }

// thisBoot returns "": no identity of a boot is known for this system.
func thisBoot() (id string, since time.Duration) { return "", 0 }
