package lookup

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"strings"
	"testing"
)

// specialUse is IANA's registry "Special-Use Domain Names" of 2026-05-22,
// https://www.iana.org/assignments/special-use-domain-names/special-use-domain.csv, with \n at
// the ends of its lines.
//
//go:embed testdata/special-use-domain.csv
var specialUse string

// specialUseSum is the SHA-256 of that file as IANA serves it, with \r\n. A newer version of
// the registry has another one: take its lines and its sum together.
const specialUseSum = "74cee5aa529088b7540252e30ba4775f83202ccb3323a590789ce9dc9a53a3cd"

func TestNoNameOfTheRegistryOfSpecialUseNamesIsPublic(t *testing.T) {
	lines := strings.Fields(strings.ReplaceAll(specialUse, " (DEPRECATED)", ""))
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.ReplaceAll(specialUse, "\n", "\r\n")))); sum != specialUseSum || len(lines) != 43 {
		t.Fatalf("the registry has %d lines and the sum %s", len(lines), sum)
	}
	for _, line := range lines[1:] {
		zone, reference, _ := strings.Cut(line, ",")
		resolved := strings.HasPrefix(zone, "example.") // as other names are (RFC 6761 section 6.5)
		for _, name := range []string{"a." + zone, "www.a." + zone} {
			if h := FromQname(name); h.Public() != resolved {
				t.Errorf("%s (%s): public is %v", name, reference, h.Public())
			}
		}
	}
}
