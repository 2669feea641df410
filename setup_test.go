package safebrowsing

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

func TestWrongPlaceInTheOrderIsRefused(t *testing.T) {
	tests := []struct {
		directives string
		ok         bool
	}{
		{"errors acl safebrowsing cache forward", true},
		{"errors", true}, // not compiled in by name: nothing to say
		{"errors acl cache safebrowsing forward", false},
		{"errors cache forward on sign view safebrowsing", false},
		{"errors hosts safebrowsing", false},
	}
	for _, tc := range tests {
		err := checkPosition(strings.Fields(tc.directives))
		if (err == nil) != tc.ok {
			t.Errorf("%s: Expected ok %v, got %v", tc.directives, tc.ok, err)
		}
		if err != nil && !strings.Contains(err.Error(), "plugin.cfg") {
			t.Errorf("%s: Expected advice, got %v", tc.directives, err)
		}
	}
}

// Of a server block nothing is kept when it has ended, and it ends when another one
// starts if its instance does not serve.
func TestServerBlocksThatHaveEndedAreForgotten(t *testing.T) {
	blocks := started{generations: make(map[*SafeBrowsing]uint64)}
	var all [3]*SafeBrowsing
	for i := range all {
		all[i] = newPlugin(config.Config{}, nil)
	}
	steps := []struct {
		name string
		do   func() error
		want []uint64 // generations of the blocks that have started and not ended
	}{
		{"one starts", func() error { return blocks.start(all[0], 1) }, []uint64{1}},
		{"another of the same Corefile starts", func() error { return blocks.start(all[1], 1) }, []uint64{1, 1}},
		{"it ends", func() error { blocks.end(all[1]); return nil }, []uint64{1}},
		{"it ends again", func() error { blocks.end(all[1]); return nil }, []uint64{1}},
		{"one of the next Corefile starts", func() error { return blocks.start(all[2], 2) }, []uint64{2}},
		{"the reload fails", func() error { blocks.endDead(0); return nil }, nil},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := slices.Sorted(maps.Values(blocks.generations)); !slices.Equal(got, step.want) {
			t.Errorf("%s: Expected generations %v, got %v", step.name, step.want, got)
		}
	}
}
