package engine

import "testing"

func TestTheOriginOfSeveralEndpointsIsTheirSet(t *testing.T) {
	of := func(endpoints string) Settings { return Settings{Endpoint: endpoints} }
	ab, ba := of("http://a http://b"), of("http://b http://a")
	if ab.Origin("K").Name != ba.Origin("K").Name || ab.Identity() != ba.Identity() || ab.Origin("K").Asker != ba.Origin("K").Asker {
		t.Error("Expected the order not to matter")
	}
	if ab.Address() != "http://a http://b" || ba.Address() != "http://b http://a" {
		t.Error("Expected the address to keep the order")
	}
	for _, tc := range []struct {
		now, before string
		want        bool
	}{
		{"http://a http://b", "http://a", true},
		{"http://a", "http://a http://b", true},
		{"http://a http://b", "http://b http://c", true},
		{"http://a http://b", "http://c", false},
		{"http://a http://b", "http://a webrisk", false},
		{"http://a", "http://b", false},
		{"http://a http://b", "http://aa", false},
	} {
		if got := of(tc.now).Origin("").Related(tc.before); got != tc.want {
			t.Errorf("%q after %q: Expected %v, got %v", tc.now, tc.before, tc.want, got)
		}
	}
}
