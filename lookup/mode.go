package lookup

// Mode says about which hosts a Checker asks the server.
type Mode uint8

const (
	// Local asks about a host that is in a threat list ("Local List Mode").
	Local Mode = iota
	// RealTime asks about every host that is not in a list of likely safe hosts.
	// Those it treats as Local does ("Real-Time Mode"). Without such lists, or while
	// they have fewer than 100 entries, it treats every host as Local does.
	RealTime
	// NoStorage asks about every host ("No-Storage Real-Time Mode").
	NoStorage
)

// String returns the mode as the Corefile spells it.
func (m Mode) String() string { return [...]string{"local", "realtime", "nostorage"}[m] }
