package main

import "testing"

func TestBuildsHaveANameAndAPath(t *testing.T) {
	o, err := parse([]string{"-only", "builds", "-build", "a=/x", "-build", "b=/y=z"})
	if err != nil || o.buildPaths["a"] != "/x" || o.buildPaths["b"] != "/y=z" || !o.wants("builds") {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{"a", "=/x", "a=", ""} {
		if _, err := parse([]string{"-build", bad}); err == nil {
			t.Errorf("no error about -build %q", bad)
		}
	}
}

// They need programs, cores or modules that not every machine has.
func TestNothingThatIsOnRequestRunsUnasked(t *testing.T) {
	for _, args := range [][]string{nil, {"-quick"}} {
		o, err := parse(args)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"sockets", "builds", "upstream", "peers"} {
			if o.wants(name) {
				t.Errorf("%q: %s is measured, which was not asked for", args, name)
			}
		}
	}
}
