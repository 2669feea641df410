package protocoltest

import (
	"testing"
	"time"
)

func TestRefereeReportsWrongVersions(t *testing.T) {
	tests := []struct {
		name string
		act  func(b *bench)
		rule string // empty: legal
	}{
		{"newest", func(b *bench) { b.lists([][]byte{b.version}, "se-4b") }, ""},
		{"absent", func(b *bench) { b.lists(nil, "se-4b") }, ""},
		{"old", func(b *bench) {
			old := b.version
			b.Publish("se-4b", nil)
			b.lists([][]byte{old}, "se-4b")
			time.Sleep(time.Hour)
			b.lists([][]byte{old}, "se-4b")
		}, "want the newest"},
		{"unknown", func(b *bench) { b.lists([][]byte{{1, 2, 3}}, "se-4b") }, "never served"},
		{"empty", func(b *bench) { b.lists([][]byte{{}}, "se-4b") }, "never served"},
		{"of another list", func(b *bench) { b.lists([][]byte{b.version}, "mw-4b") }, "was sent for"},
		{"twice", func(b *bench) { b.lists([][]byte{b.version, b.version}, "se-4b") }, "more than one version"},
		{"after bad content", func(b *bench) {
			b.Break("batchGet", 1, Fault{Duplicate: true})
			old := b.version
			b.lists([][]byte{old}, "se-4b")
			time.Sleep(time.Hour)
			b.lists([][]byte{old}, "se-4b")
		}, "last update was bad"},
		{"of a bad answer", func(b *bench) {
			b.Break("batchGet", 1, Fault{WrongChecksum: true})
			b.Publish("se-4b", nil)
			b.lists([][]byte{b.version}, "se-4b")
			time.Sleep(time.Hour)
			b.lists([][]byte{b.version}, "se-4b")
		}, "had to be refused"},
		{"name twice", func(b *bench) { b.lists(nil, "mw-4b", "mw-4b", "mw-4b") }, "more than once"},
	}
	for _, tt := range tests {
		inBubble(t, tt.name, func(b *bench) {
			b.lists(nil, "se-4b")
			time.Sleep(time.Hour)
			tt.act(b)
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
}

// One of several servers takes the versions of the others, and of nobody else.
func TestOneOfManyTakesTheVersionsOfTheOthers(t *testing.T) {
	other := New(t)
	other.Publish("se-4b", [][]byte{[]byte("abcd")})
	version := other.list("se-4b").newest().id
	for _, tt := range []struct {
		name      string
		oneOfMany bool
		version   []byte
		rule      string // empty: legal
	}{
		{"of another server", true, version, ""},
		{"of another server, though it is alone", false, version, "never served"},
		{"unknown", true, []byte{1, 2, 3}, "never served"},
	} {
		inBubble(t, tt.name, func(b *bench) {
			if tt.oneOfMany {
				b.OneOfMany()
			}
			b.Server.lists = map[string]*list{} // the first version made is the same one
			b.Publish("se-4b", [][]byte{[]byte("abcd")})
			b.lists([][]byte{tt.version}, "se-4b")
			if got := b.violations.take(); tt.rule == "" {
				wantNone(b.T, got)
			} else {
				wantOne(b.T, got, tt.rule)
			}
		})
	}
}
