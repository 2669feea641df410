package updater

import "time"

// A moment is one point in time by the clocks that outlive a process. Each file with waits has
// the moment at which it was saved: so the next process knows how much of the waits has passed.
// It is a value.
//
// The JSON names are part of the format of the files. A version that knows no boots reads the
// wall clock only, and what it saves has no boot.
type moment struct {
	Saved time.Time `json:"saved"` // by the wall clock, which may be set
	// Boot and SinceBoot are by a clock that cannot be set, see thisBoot.
	Boot      string        `json:"boot,omitempty"` // "": not known
	SinceBoot time.Duration `json:"since_boot,omitzero"`
}

// unset returns what the wall clock would show at now if it had not been set since m. Where the
// clocks do not agree, it is the earliest time that one of them allows, and never before m: a
// wait may be kept for too long, but at most as long as was left of it at m. So it does no
// harm if the clock since boot is wrong, as in a container with an offset of its own
// (time_namespaces(7)), or in two machines that went on from one snapshot.
func (m moment) unset(now moment) time.Time {
	wall := now.Saved
	if sinceM := now.SinceBoot - m.SinceBoot; m.Boot != "" && m.Boot == now.Boot && sinceM >= 0 {
		if t := m.Saved.Add(sinceM); t.Before(wall) {
			wall = t
		}
	}
	if wall.Before(m.Saved) {
		return m.Saved
	}
	return wall
}

// after reports whether m is later than other. Between two boots it believes the wall clock.
func (m moment) after(other moment) bool {
	if m.Boot != "" && m.Boot == other.Boot {
		return m.SinceBoot > other.SinceBoot
	}
	return m.Saved.After(other.Saved)
}
