package lookup

import (
	"testing"
)

func TestAddressesHaveNoDots(t *testing.T) {
	for _, text := range []string{"1.2.3.4", "0x7f.1", "[::1]", "[::ffff:1.2.3.4]", "[2001:db8::1.2.3.4]"} {
		h, ok := ParseHost(text)
		if !ok || !h.ip() || h.dots() != 0 || h.by(RuleV4).dots() != 0 {
			t.Errorf("%s: %+v, %t", text, h, ok)
		}
	}
}
