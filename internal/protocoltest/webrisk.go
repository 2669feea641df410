package protocoltest

import (
	"bytes"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// extendedList is a list that only Web Risk has.
const extendedList = "se-ext-4b"

// riskLists are the lists that Web Risk has, by the names they have here. The threat
// types of Safe Browsing have other numbers: 4 is another type there.
var riskLists = []struct {
	name   string
	risk   wrv1.ThreatType
	threat sbv5.ThreatType // unspecified if Safe Browsing has none
}{
	{"se-4b", wrv1.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatType_SOCIAL_ENGINEERING},
	{"mw-4b", wrv1.ThreatType_MALWARE, sbv5.ThreatType_MALWARE},
	{"uws-4b", wrv1.ThreatType_UNWANTED_SOFTWARE, sbv5.ThreatType_UNWANTED_SOFTWARE},
	{extendedList, wrv1.ThreatType_SOCIAL_ENGINEERING_EXTENDED_COVERAGE, sbv5.ThreatType_THREAT_TYPE_UNSPECIFIED},
}

// riskList returns the name of the list with this threat type, or a text that is no
// list's name.
func riskList(risk wrv1.ThreatType) string {
	for _, l := range riskLists {
		if l.risk == risk {
			return l.name
		}
	}
	return risk.String()
}

// riskOf returns the threat type of Web Risk that means the same. A number that Safe
// Browsing does not know stays as it is: clients must drop unknown types. The result
// is unspecified for a threat that Web Risk has no list of.
func riskOf(threat sbv5.ThreatType) wrv1.ThreatType {
	if _, known := sbv5.ThreatType_name[int32(threat)]; !known {
		return wrv1.ThreatType(threat)
	}
	for _, l := range riskLists {
		if l.threat == threat {
			return l.risk
		}
	}
	return wrv1.ThreatType_THREAT_TYPE_UNSPECIFIED
}

// tokenTag begins every version token, so that no version of Safe Browsing is one:
// the two services do not know each other's. It is "++++" in standard base64.
var tokenTag = []byte{0xfb, 0xef, 0xbe}

// tokenOf returns the version token of a version.
func tokenOf(id []byte) []byte { return append(bytes.Clone(tokenTag), id...) }

// versionOf is the reverse of tokenOf. The result for another text is no version.
func versionOf(token []byte) []byte {
	if len(token) == 0 {
		return nil
	}
	if id, ours := bytes.CutPrefix(token, tokenTag); ours {
		return id
	}
	return tokenOf(token)
}
