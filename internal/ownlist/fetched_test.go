package ownlist

import (
	"strings"
	"testing"
	"time"
)

// A list by URL that is something else, by a redirect or a mistake, is not quoted.
func TestNoLineOfAFetchedListIsQuoted(t *testing.T) {
	const list = "a.example\nS3CRET = yes, it is\n10.0.0.1 S3CRET-host\n"
	for _, fetched := range []bool{false, true} {
		c, err := read(strings.NewReader(list), Config{Fetched: fetched}, 0)
		must(t, err)
		remarks := strings.Join(c.summary.Remarks(), "; ")
		if strings.Contains(remarks, "S3CRET") == fetched || !strings.Contains(remarks, "first at line 2") || !strings.Contains(remarks, "first at line 3") {
			t.Errorf("fetched %v: %s", fetched, remarks)
		}
	}
}

// To allow by URL what is a whole suffix would end protection.
func TestAFetchedListHasNoWholeSuffixes(t *testing.T) {
	const list = "a.example.org\n.com\n||co.uk^\n@@||de^\n0.0.0.0 net\n"
	for _, tc := range []struct {
		c       Config
		entries int
		left    int
	}{
		{Config{}, 5, 0}, {Config{Fetched: true, Wide: true}, 5, 0}, {Config{Fetched: true}, 2, 3},
		{Config{Allow: true}, 5, 0}, {Config{Fetched: true, Allow: true}, 1, 4},
	} {
		c, err := read(strings.NewReader(list), tc.c, 0)
		must(t, err)
		if got := c.summary; got.Entries != tc.entries || got.LeftOut.Count() != tc.left {
			t.Errorf("%+v: %d entries, left out: %s; want %d and %d", tc.c, got.Entries, got.LeftOutRemark(), tc.entries, tc.left)
		}
	}
}

func TestBigListsTakeTurnsUnlessOneHangs(t *testing.T) {
	now := time.Now()
	var r turn
	if !r.take(now) || r.take(now.Add(longTurn-1)) {
		t.Error("two have the turn")
	}
	if !r.take(now.Add(longTurn)) {
		t.Error("a turn that hangs keeps others away")
	}
	r.give()
	if !r.take(now.Add(longTurn)) {
		t.Error("a turn that was given back is not free")
	}
}
