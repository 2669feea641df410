package lookup

import "testing"

func TestMoreThanMaxFilteredPrefixesAreJoined(t *testing.T) {
	lists := func() []List {
		return []List{listOf("a", "a.example/", "b.example/"), listOf("b", "b.example/", "c.example/"),
			{Name: "safe", Set: listOf("safe", "d.example/").Set, LikelySafe: true}}
	}
	for _, test := range []struct {
		name        string
		maxFiltered int
		lists       []List
		joined      bool
	}{
		{"none has a filter", -1, lists(), true},
		{"by default", 0, lists(), false},
		{"one more than have a filter", 3, lists(), true},
		{"as many as have a filter", 4, lists(), false},
		{"no list", -1, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &Database{MaxFiltered: test.maxFiltered}
			if d.PublishApart(test.lists) {
				t.Error("lists were replaced, but there were none")
			}
			checkHeld(t, d, len(test.lists) > 0)
			if joined := d.Join(); joined != test.joined {
				t.Errorf("joined: %t, want %t", joined, test.joined)
			}
			checkHeld(t, d, len(test.lists) > 0)
			if replaced := d.PublishApart(lists()); replaced != (len(test.lists) > 0) {
				t.Errorf("replaced: %t", replaced)
			}
		})
	}
}

// checkHeld asks a database with three unsafe hosts, or without a list, about these and others.
func checkHeld(t *testing.T, d *Database, lists bool) {
	t.Helper()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		want := lists && name < "d"
		if got := d.snapshot().holdsAny([]FullHash{HashExpression(name + ".example/")}); got != want {
			t.Errorf("%s.example: got %t, want %t", name, got, want)
		}
	}
}
