package updater

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Lists belong to a server, clocks to the asker as well. Two keys at one server share the
// lists of a folder, and each has waits of its own.

// Origin says which server the lists of a Store come from, and who asks it.
type Origin struct {
	// Name is the address of the server. Lists of another origin count as absent: this
	// server does not know their versions.
	Name string
	// Predecessors are origins whose lists serve until this server has delivered its
	// own.
	Predecessors []Predecessor
	// Related reports whether lists of another origin, by its name, come from a
	// predecessor whose versions the server knows. Nil: none are.
	Related func(name string) bool
	// Schedule is the file name of the schedule; "": schedule.json. It begins with
	// "schedule" and ends in ".json": Status looks for that.
	Schedule string
	// Asker tells keys apart, see the function Asker; "": all keys are one.
	Asker string
	// Token tells the access tokens of an asker apart, see the function Asker; "": it has
	// none.
	Token string
}

// Predecessor is an origin of lists that another one takes over.
type Predecessor struct {
	Name string // not empty
	// Continues says that the server that takes over knows the versions, for lists
	// whose entries are all as wide as the name says.
	Continues bool
}

// scheduleFile returns the file name of the schedule.
func (o Origin) scheduleFile() string { return cmp.Or(o.Schedule, "schedule.json") }

// searchFile is the file name of the clock of searches. Status must not take it for a
// schedule, so it does not begin like one.
func (o Origin) searchFile() string {
	return "searches" + strings.TrimPrefix(o.scheduleFile(), "schedule")
}

// Asker returns an Origin.Asker for a key at an endpoint: a SHA-256 cut to four bytes,
// as hex. It tells keys apart, and is too short to find a key from it.
func Asker(endpoint, key string) string {
	sum := sha256.Sum256([]byte(endpoint + "\x00" + key))
	return hex.EncodeToString(sum[:4])
}
