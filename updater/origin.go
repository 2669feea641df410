package updater

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Origin says where the lists of a Store come from.
type Origin struct {
	// Name is that of the server. Lists of another origin are taken for absent:
	// their versions mean nothing to this one.
	Name string
	// Predecessor is the name of an origin whose lists are in force until they have
	// been fetched from this one; zero: none.
	Predecessor string
	// Continues says that this origin knows the versions of its predecessor, for
	// lists whose entries are all as wide as the name says.
	Continues bool
	// Schedule is the name of the file of the schedule; zero: "schedule.json".
	Schedule string
	// Asker tells keys apart, see the function of that name; zero: all are one.
	Asker string
}

func (o Origin) scheduleFile() string { return cmp.Or(o.Schedule, "schedule.json") }

// searchFile is the name of the file with the clock of searches. It is none that
// Status takes for a schedule.
func (o Origin) searchFile() string {
	return "searches" + strings.TrimPrefix(o.scheduleFile(), "schedule")
}

// Asker names who asks a server, for Origin.Asker: it tells two keys apart and
// tells neither. A hash of four bytes cannot be turned back into a key.
func Asker(endpoint, key string) string {
	sum := sha256.Sum256([]byte(endpoint + "\x00" + key))
	return hex.EncodeToString(sum[:4])
}
