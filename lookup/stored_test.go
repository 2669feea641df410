package lookup

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// storedAs returns a list of prefixes of the hash of an expression, of the widths.
func storedAs(t testing.TB, name, expression string, widths ...int) List {
	t.Helper()
	hash := HashExpression(expression)
	var entries [][]byte
	for _, width := range widths {
		entries = append(entries, hash[:width])
	}
	return List{Name: name, Set: setOf(entries)}
}

func TestPrefixesAreAskedAsTheyAreStored(t *testing.T) {
	const host = "example.com/"
	likelySafe := storedAs(t, "safe", host, 4)
	likelySafe.LikelySafe = true
	tests := []struct {
		name  string
		lists []List
		first string // the list in the decision
		size  int    // bytes of the prefix that is sent with AsStored
	}{
		{"four bytes", []List{storedAs(t, "a", host, 4)}, "a", 4},
		{"five bytes", []List{storedAs(t, "a", host, 5)}, "a", 5},
		{"a whole hash", []List{storedAs(t, "a", host, 32)}, "a", 32},
		{"the shortest of a list", []List{storedAs(t, "a", host, 6, 8, 32)}, "a", 6},
		{"the shortest of two lists, in the first", []List{storedAs(t, "a", host, 5, 16), storedAs(t, "b", host, 8)}, "a", 5},
		{"the shortest of two lists, in the second", []List{storedAs(t, "a", host, 16), storedAs(t, "b", host, 7, 32)}, "a", 7},
		{"another list that does not match", []List{storedAs(t, "a", "example.net/", 4), storedAs(t, "b", host, 9)}, "b", 9},
		{"a list of likely safe ones does not count", []List{likelySafe, storedAs(t, "b", host, 10)}, "b", 10},
	}
	for _, tt := range tests {
		for _, asStored := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: ", as stored", false: ", in four bytes"}[asStored], func(t *testing.T) {
				database := new(Database)
				database.Publish(tt.lists)
				srv := &server{t: t}
				srv.knows(time.Hour, isThreat(host, Malware))
				c := checkerOf(t, Config{Database: database, Searcher: srv, AsStored: asStored})
				if got := decide(t, c, "example.com."); got.Verdict != Unsafe || got.List != tt.first {
					t.Errorf("%+v, want unsafe, of list %s", got, tt.first)
				}
				want := HashExpression(host).Prefix(4)
				if asStored {
					want = HashExpression(host).Prefix(tt.size)
				}
				if got := srv.searches(); len(got) != 1 || !slices.Equal(got[0], []Prefix{want}) {
					t.Errorf("asked for %x, want %x", got, want)
				}
			})
		}
	}
}

// TestHostsInNoListAreAskedInFourBytes tests the modes that ask about hosts that no
// list holds.
func TestHostsInNoListAreAskedInFourBytes(t *testing.T) {
	database := new(Database)
	database.Publish([]List{storedAs(t, "a", "example.com/", 8)})
	srv := &server{t: t}
	c := checkerOf(t, Config{Database: database, Searcher: srv, AsStored: true, Mode: NoStorage})
	decide(t, c, "www.example.com.")
	want := []Prefix{HashExpression("www.example.com/").Prefix(4), HashExpression("example.com/").Prefix(8)}
	if got := srv.searches(); len(got) != 1 || !slices.Equal(got[0], want) {
		t.Errorf("asked for %x, want %x", got, want)
	}
}

// TestAnswersOfOneLengthServeAnother tests lists whose prefixes change their length.
func TestAnswersOfOneLengthServeAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := new(Database)
		database.Publish([]List{storedAs(t, "a", "example.com/", 8)})
		srv := &server{t: t}
		srv.knows(time.Hour, isThreat("example.com/", Malware))
		c := checkerOf(t, Config{Database: database, Searcher: srv, AsStored: true})
		decide(t, c, "example.com.")
		database.Publish([]List{storedAs(t, "a", "example.com/", 4)})
		if got := decide(t, c, "example.com."); got.Verdict != Unsafe || got.By != ByCache {
			t.Errorf("%+v, want unsafe by cache", got)
		}
		time.Sleep(maxVerdictAge + 1)
		srv.knows(time.Hour)
		if got := decide(t, c, "example.com."); got != (Decision{By: ByServer}) {
			t.Errorf("after its TTL: %+v, want safe by server", got)
		}
		database.Publish([]List{storedAs(t, "a", "example.com/", 8)})
		if got := decide(t, c, "example.com."); got != (Decision{By: ByCache}) {
			t.Errorf("in the old length again: %+v, want safe by cache", got)
		}
	})
}
