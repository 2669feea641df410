package status

import (
	"cmp"
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// Devices are the clients that ask for names of public encrypted resolvers.
type Devices struct {
	Left int      `json:"left"` // ask for nothing else: they may not be protected
	Also int      `json:"also"` // asked for one today, and ask for other names, too
	Told []Device `json:"told"` // the ones whose address is told: who left first, at most 100
}

// Device is a client that asks for a public encrypted resolver.
type Device struct {
	Client   string    `json:"client"`      // its address; "": it is not told
	Resolver string    `json:"resolver"`    // that it asked for last
	Asked    int       `json:"asked_today"` // queries for resolvers
	Last     time.Time `json:"last"`        // of them
	Since    time.Time `json:"since"`       // when it last asked for another name, or was first seen
	Left     bool      `json:"left"`
	Zones    string    `json:"-"` // of the server block that tells Client
	Named    bool      `json:"-"` // pages may show it
}

// Any reports whether there is something to say.
func (d Devices) Any() bool { return d.Left+d.Also > 0 }

// InWords returns the numbers in a sentence without its full stop.
func (d Devices) InWords() string {
	if !d.Any() {
		return "no device asks for a public encrypted resolver"
	}
	n := d.Left + d.Also
	text := fmt.Sprintf("%s %s for public encrypted resolvers", say.Count(n, "device", "devices"), say.Plural(n, "asks", "ask"))
	switch {
	case d.Left == 0:
		return text + ", and for other names, too"
	case d.Left == n:
		text += " and for nothing else"
	default:
		text += fmt.Sprintf(", %d of them for nothing else", d.Left)
	}
	return text + ": " + say.Plural(d.Left, "it may not be protected", "they may not be protected")
}

// Compare orders devices: those that left first, then those that asked more.
func (d Device) Compare(e Device) int {
	left := func(x Device) int { return map[bool]int{true: 0, false: 1}[x.Left] }
	return cmp.Or(left(d)-left(e), e.Asked-d.Asked, cmp.Compare(d.Client, e.Client))
}

// who returns the address, if it is told.
func (d Device) who() string { return cmp.Or(d.Client, "A device") }

// String returns what is said about the device, as a sentence without its full stop.
func (d Device) String() string {
	text := fmt.Sprintf("%s asked for %s %s today", d.who(), d.Resolver, say.Count(d.Asked, "time", "times"))
	switch {
	case !d.Left:
		return text + ", and for other names, too"
	case d.Asked == 0: // it is after midnight
		text = fmt.Sprintf("%s asked for %s, last at %s,", d.who(), d.Resolver, say.Time(d.Last))
	}
	return text + " and nothing else since " + say.Time(d.Since) + ": it may not be protected"
}

// BackAfter returns what is said about a device that had left, and asks for other names again.
func (d Device) BackAfter(now time.Time) string {
	return fmt.Sprintf("%s, which asked for %s only, asks for other names again, after %s", d.who(), d.Resolver, say.Age(now.Sub(d.Since)))
}

// Forgotten returns what is said about a device that had left, and asks for nothing any more.
func (d Device) Forgotten() string {
	return fmt.Sprintf("%s, which asked for %s only, asks for nothing any more since %s", d.who(), d.Resolver, say.Time(d.Last))
}
