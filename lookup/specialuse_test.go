package lookup

import (
	_ "embed"
	"strings"
	"testing"
)

//go:embed testdata/special-use.txt
var specialUse string

func TestNoSpecialUseNameIsPublic(t *testing.T) {
	for line := range strings.Lines(specialUse) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		resolved := len(fields) == 3 && fields[2] == "resolved"
		for _, name := range []string{"a." + fields[0] + ".", "www.a." + fields[0] + "."} {
			if h := FromQname(name); h.Public() != resolved {
				t.Errorf("%s (%s): public is %v", name, fields[1], h.Public())
			}
		}
	}
}

// What never leaves a site must not be sent, whatever it collides with.
func TestNoNameOfAPrivateNetworkIsPublic(t *testing.T) {
	for _, name := range []string{"pc.lan.", "nas.home.", "x.corp.", "a.intranet.", "a.private.", "a.internal.", "fritz.box.", "nas.fritz.box.", "10.0.0.1.", "192.168.178.1.", "127.0.0.1.", "172.16.1.1.", "169.254.1.1."} {
		if FromQname(name).Public() {
			t.Errorf("%s is public", name)
		}
	}
	for _, name := range []string{"xlan.de.", "plan.net.", "lan.example.com.", "my.box.", "xfritz.box.", "whome.me.", "home.de.", "corp.com."} {
		if !FromQname(name).Public() {
			t.Errorf("%s is not public", name)
		}
	}
}
