package protocoltest

import (
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// triple is how the Update API v4 names a list.
type triple struct {
	threat   sbv4.ThreatType
	platform sbv4.PlatformType
	entry    sbv4.ThreatEntryType
}

// triples are the lists that the server knows in v4, by their names in v5. Any
// other combination is unknown, as with Google's server (page "Safe Browsing
// Lists").
var triples = []struct {
	name string
	triple
}{
	{"se-4b", triple{sbv4.ThreatType_SOCIAL_ENGINEERING, sbv4.PlatformType_ANY_PLATFORM, sbv4.ThreatEntryType_URL}},
	{"mw-4b", triple{sbv4.ThreatType_MALWARE, sbv4.PlatformType_ANY_PLATFORM, sbv4.ThreatEntryType_URL}},
	{"uws-4b", triple{sbv4.ThreatType_UNWANTED_SOFTWARE, sbv4.PlatformType_ANY_PLATFORM, sbv4.ThreatEntryType_URL}},
	{"uwsa-4b", triple{sbv4.ThreatType_UNWANTED_SOFTWARE, sbv4.PlatformType_ANDROID, sbv4.ThreatEntryType_URL}},
	{"pha-4b", triple{sbv4.ThreatType_POTENTIALLY_HARMFUL_APPLICATION, sbv4.PlatformType_ANDROID, sbv4.ThreatEntryType_URL}},
}

// tripleOf returns the triple of a list, all unspecified if it has none.
func tripleOf(name string) triple {
	for _, known := range triples {
		if known.name == name {
			return known.triple
		}
	}
	return triple{}
}

// list returns the name of the list, or a text that is no list's name.
func (t triple) list() string {
	for _, known := range triples {
		if known.triple == t {
			return known.name
		}
	}
	return strings.Join([]string{t.threat.String(), t.platform.String(), t.entry.String()}, "/")
}

// specified reports whether all three types are set.
func (t triple) specified() bool { return t.threat != 0 && t.platform != 0 && t.entry != 0 }

// listsAbout returns the lists that the types of a threat_info cover, every type of
// it with every other, in the order of triples.
func listsAbout(info *sbv4.ThreatInfo) (names []string) {
	for _, known := range triples {
		if slices.Contains(info.GetThreatTypes(), known.threat) &&
			slices.Contains(info.GetPlatformTypes(), known.platform) &&
			slices.Contains(info.GetThreatEntryTypes(), known.entry) {
			names = append(names, known.name)
		}
	}
	return names
}
