package block

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// prefixesOf returns the prefixes of hosts.
func prefixesOf(names ...string) (all []byte) {
	for _, name := range names {
		all = append(all, lookup.HashExpression(name+"/").Prefix(4)...)
	}
	return all
}

func TestListingsTellWhatIsKnownHere(t *testing.T) {
	own := testkit.Write(t, t.TempDir(), "list.txt", "own.example\n")
	b := listing(t, config.Block{Except: []string{"lan.example."}, Own: []config.OwnFile{{Path: own}}}, "evil.example", "sb.example.net")
	b.Need(neededNames)
	testkit.Must(t, b.ReadOwn())
	l, err := b.Listings(t.Context(), Question{
		Prefixes: prefixesOf("clean.example", "evil.example"),
		Hosts:    []string{"own.example", "own.lan.example", "clean.example", "sb.example.net"},
	})
	testkit.Must(t, err)
	if len(l.Listed) != 1 || l.Listed[0].Prefix != hex.EncodeToString(prefixesOf("evil.example")) || !slices.Equal(l.Listed[0].Lists, []string{"mw-4b"}) || l.Listed[0].Ask != 1 {
		t.Errorf("listed: %+v", l.Listed)
	}
	if want := []OwnSay{{"own.example", own, false}, {"sb.example.net", NeededList, true}}; !slices.Equal(l.Own, want) {
		t.Errorf("own: %+v, want %+v", l.Own, want)
	}
	if l.Zones != "." || l.PerSearch != lookup.MaxPrefixes || l.Left != -1 || l.Protocol != "v5" {
		t.Errorf("%+v", l)
	}
}

func TestConfirmAnswersAboutEachPrefixAndAsksOnce(t *testing.T) {
	b := listing(t, config.Block{}, "evil.example", "harmless.example")
	q := Question{Prefixes: prefixesOf("evil.example", "harmless.example", "clean.example")}
	for searches := 1; searches >= 0; searches-- { // then the answers are cached
		c, err := b.Confirm(t.Context(), q)
		if err != nil || c.Error != "" || c.Searches != searches || len(c.Answers) != 3 {
			t.Fatalf("%+v, %v, want %d searches", c, err, searches)
		}
		evil := lookup.HashExpression("evil.example/")
		if got := c.Answers[0]; !slices.Equal(got.Threats, []string{hex.EncodeToString(evil[:])}) || got.TTL <= 0 || got.TTL > 30*time.Minute {
			t.Errorf("%+v", got)
		}
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	b := listing(t, config.Block{}, "evil.example")
	nostorage := listing(t, config.Block{}, "evil.example")
	nostorage.Settings.Mode = lookup.NoStorage
	for want, ask := range map[string]func() error{
		"prefixes have 4 bytes each": func() error { _, err := b.Listings(t.Context(), Question{Prefixes: []byte("abcde")}); return err },
		"4097 prefixes at once, at most 4096": func() error {
			_, err := b.Listings(t.Context(), Question{Prefixes: make([]byte, 4*(MaxPrefixes+1))})
			return err
		},
		"257 hosts at once, at most 256": func() error {
			_, err := b.Listings(t.Context(), Question{Hosts: make([]string, MaxHosts+1)})
			return err
		},
		"241 prefixes at once, at most 240": func() error {
			_, err := b.Confirm(t.Context(), Question{Prefixes: make([]byte, 4*241)})
			return err
		},
		"mode nostorage keeps no lists": func() error { _, err := nostorage.Listings(t.Context(), Question{}); return err },
		"no server block uses":          func() error { _, err := New(config.Config{}).Listings(t.Context(), Question{}); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// hanging is a server that does not answer before its context ends.
type hanging struct{ begun chan struct{} }

func (h hanging) Search(ctx context.Context, _ []lookup.Prefix) (lookup.Answer, error) {
	close(h.begun)
	<-ctx.Done()
	return lookup.Answer{}, ctx.Err()
}

func TestOneProgramAtATimeHasPrefixesConfirmed(t *testing.T) {
	b := listing(t, config.Block{}, "evil.example")
	server := hanging{make(chan struct{})}
	b.Use(engine.ServiceForTests(checkerOf(t, server, "evil.example")))
	p := &Process{blocks: []*Block{b}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan Confirmed, 1)
	go func() {
		c, _ := p.Confirm(ctx, Question{Prefixes: prefixesOf("evil.example")})
		ended <- c
	}()
	<-server.begun
	if _, err := p.Confirm(t.Context(), Question{}); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("the second one: %v", err)
	}
	cancel()
	if c := <-ended; c.Error == "" || len(c.Answers) != 0 || c.Searches != 1 {
		t.Errorf("the first one: %+v", c)
	}
	if _, err := p.Confirm(t.Context(), Question{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// halfKnown is a server that knows one name, and takes long for all others.
type halfKnown struct{ slow, slower threats }

func (h halfKnown) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	if slices.Contains(prefixes, lookup.Prefix(prefixesOf("known.example"))) {
		return h.slow.Search(ctx, prefixes)
	}
	time.Sleep(time.Second)
	return h.slower.Search(ctx, prefixes)
}

// A query would be answered with the threat that is known; who counts waits for all.
func TestAKnownThreatDoesNotHideWhatIsAnsweredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const known, late = "known.example", "late.example"
		b := New(config.Config{})
		b.Use(engine.ServiceForTests(checkerOf(t, halfKnown{threats{[]string{known}}, threats{[]string{late}}}, known, late)))
		for _, names := range [][]string{{known}, {known, late}} {
			c, err := b.Confirm(t.Context(), Question{Prefixes: prefixesOf(names...)})
			if err != nil || c.Error != "" || c.Searches != 1 || len(c.Answers) != len(names) {
				t.Fatalf("%q: %+v, %v", names, c, err)
			}
			for i, name := range names {
				hash := lookup.HashExpression(name + "/")
				if got := c.Answers[i].Threats; !slices.Equal(got, []string{hex.EncodeToString(hash[:])}) {
					t.Errorf("%s: %q", name, got)
				}
			}
		}
	})
}
