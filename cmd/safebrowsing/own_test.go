package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// ownWorld is a folder with a Corefile and a list of allow and of block.
func ownWorld(t *testing.T, stanza string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Chdir(dir)
	t.Setenv("SAFEBROWSING_API_KEY", "")
	write(t, "allow.txt", "# mine\n\na.example # Bob\nold.example # until 2020-01-01\n")
	write(t, "block.txt", "bad.example\n")
	write(t, "Corefile", ". {\n safebrowsing {\n  "+stanza+"\n }\n}\n")
	return dir
}

// A host belongs to one server block, and a file may belong to all. A more specific entry of block wins over allow.
func TestWhatIsAsItShouldBeIsNoComplaint(t *testing.T) {
	const lists = "allow allow.txt\n  block block.txt"
	ownWorld(t, lists+"\n }\n}\nexample.org {\n safebrowsing {\n  "+lists)
	run(t, "allow", "x.example").want(0).quiet()
	run(t, "block", "www.example.org").want(0).quiet()
	write(t, "block.txt", "*.shop.example\nwww.shop.example\n")
	run(t, "allow", "shop.example", "www.shop.example").want(0).quiet()
}

func TestAllowAndBlockEditTheFileOfTheCorefile(t *testing.T) {
	const below = ", with all names below it, by "
	const ended = "\n   removed, as it has ended: old.example # until 2020-01-01\n"
	for _, tt := range []struct {
		args        string
		status      int
		out         string // of both outputs, without times
		file, after string
	}{
		{"allow x.example", 0, "x.example: allowed" + below + "allow.txt, line 4" + ended, "allow.txt", "# mine\n\na.example # Bob\nx.example\n"},
		{"allow -for 30m X.example", 0, "x.example: allowed until TIME" + below + "allow.txt, line 4" + ended,
			"allow.txt", "# mine\n\na.example # Bob\nx.example # until TIME\n"},
		{"allow -for 30m a.example", 0, "a.example: allowed" + below + "allow.txt, line 3" + ended, "allow.txt", "# mine\n\na.example # Bob\n"},
		{"allow -remove a.example", 0, "a.example: removed from allow.txt (1 line)" + ended, "allow.txt", "# mine\n\n# empty on purpose\n"},
		{"allow -remove x.example", 2, "safebrowsing: allow.txt: no line is about x.example\n", "allow.txt", ""},
		{"allow x.example not/a/host", 2, "safebrowsing: \"not/a/host\" is not a host: write a name such as www.example.org\n", "allow.txt", ""},
		{"allow -for 1h foo..example", 2, "safebrowsing: \"foo..example\" is not a host: write a name such as www.example.org\n", "allow.txt", ""},
		{"allow co.uk", 2, "safebrowsing: co.uk is a public suffix: an entry would be about every name below it; if you want that, write it into the file by hand\n", "allow.txt", ""},
		{"allow 192.0.2.1", 2, "safebrowsing: \"192.0.2.1\" is an address: write the name that is asked for\n", "allow.txt", ""},
		{"allow -for 1x x.example", 2, "safebrowsing: \"1x\" is not a duration such as 30m, 2h or 7d\n", "allow.txt", ""},
		{"allow -until 2020-01-01 x.example", 2, "safebrowsing: -until: 2020-01-01 is in the past\n", "allow.txt", ""},
		{"allow -for 1h -until 18:00 x.example", 2, "safebrowsing: -for and -until are both given: keep one of the two\n", "allow.txt", ""},
		{"allow -list x.example", 2, "safebrowsing: allow -list takes no hosts, and only -file, -corefile and -json\n", "allow.txt", ""},
		{"allow", 2, "safebrowsing: allow takes hosts, see safebrowsing allow -h\n", "allow.txt", ""},
		{"allow -list", 0, "allow.txt:3: a.example # Bob\nallow.txt:4: old.example # until 2020-01-01   (ended)\n", "allow.txt", ""},
		{"block -list -file /dev/null", 2, "safebrowsing: opening /dev/null: it is not a regular file\n", "block.txt", ""},
		{"allow -file block.txt x.example", 2, "safebrowsing: block.txt is a file of block in Corefile: use safebrowsing block, or another file\n", "block.txt", ""},
		{"allow -file new.txt x.example", 1, "x.example: allowed" + below + "new.txt, line 1\n" +
			"safebrowsing: CoreDNS does not read new.txt: no server block of Corefile has the line \"allow new.txt\"\n", "new.txt", "x.example\n"},
		{"allow -file none/new.txt x.example", 2, "safebrowsing: there is no folder none\n", "block.txt", ""},
		{"block x.example y.example", 0, "x.example: blocked" + below + "block.txt, line 2\ny.example: blocked" + below + "block.txt, line 3\n",
			"block.txt", "bad.example\n.x.example\n.y.example\n"},
		{"block a.example", 1, "a.example: blocked" + below + "block.txt, line 2\nsafebrowsing: Corefile:2: a.example still passes: it is allowed by allow.txt\n",
			"block.txt", "bad.example\n.a.example\n"},
		{"block lan.example", 1, "lan.example: blocked" + below + "block.txt, line 2\n" +
			"safebrowsing: Corefile:2: lan.example is not checked: it is in no zone of this server block, or in one of its exceptions\n", "block.txt", "bad.example\n.lan.example\n"},
		{"block -for 1h x.example", 2, "safebrowsing: flag provided but not defined: -for, see safebrowsing block -h\n", "block.txt", ""},
		{"allow -json -remove a.example", 0, `{"host":"a.example","action":"remove","file":"allow.txt","line":0,"entry":"","changed":true,"removed":["a.example # Bob"],"ended":["old.example # until 2020-01-01"],"but":""}` + "\n",
			"allow.txt", "# mine\n\n# empty on purpose\n"},
		{"allow -json -list", 0, `{"file":"allow.txt","line":3,"entry":"a.example # Bob","until":"","ended":false}` + "\n" +
			`{"file":"allow.txt","line":4,"entry":"old.example # until 2020-01-01","until":"TIME","ended":true}` + "\n", "allow.txt", ""},
	} {
		t.Run(tt.args, func(t *testing.T) {
			ownWorld(t, "allow allow.txt\n  block block.txt\n  except lan.example")
			before, _ := os.ReadFile(tt.file)
			s := run(t, strings.Fields(tt.args)...).want(tt.status)
			expect(t, "output", wordedTimes(s.out+s.errOut), tt.out)
			expect(t, tt.file, wordedTimes(read(t, tt.file)), cmp.Or(tt.after, string(before)))
		})
	}
}

func wordedTimes(text string) string {
	text = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+,`).ReplaceAllString(text, "TIME,")
	return stamps.ReplaceAllString(text, "TIME")
}

func TestACorefileWithoutAListSaysWhichLineToAdd(t *testing.T) {
	ownWorld(t, "block block.txt\n }\n}\nexample.org {\n safebrowsing {\n  block other.txt")
	write(t, "other.txt", "c.example\n")
	run(t, "allow", "x.example").want(2, "safebrowsing: Corefile has no file of allow: add the line \"allow /etc/coredns/allow.txt\" to the braces of safebrowsing at Corefile:2, create that file, and restart CoreDNS\n")
	run(t, "block", "x.example").want(0, "safebrowsing: block.txt is not read by the server block at Corefile:7\n")
	testkit.Must(t, os.Remove("Corefile"))
	run(t, "allow", "x.example").want(2, "there is no Corefile here: use -corefile")
	run(t, "allow", "-file", "allow.txt", "x.example").want(0, "it is not known whether CoreDNS reads allow.txt: use -corefile")
}

// A server that may not write the lists of the Corefile has one of its own.
func TestAListOfTheServerIsListed(t *testing.T) {
	ownWorld(t, "db state\n  allow allow.txt\n  block block.txt")
	testkit.Must(t, os.Mkdir("state", 0o755))
	write(t, "state/allow.txt", "there.example\n")
	run(t, "allow", "-list").want(0, "allow.txt:3: a.example # Bob\n", "state/allow.txt:1: there.example\n").quiet()
	run(t, "block", "-list").want(0, "block.txt:1: bad.example\n").not("state")
	run(t, "allow", "-file", "state/allow.txt", "x.example").want(0).quiet()
	run(t, "allow", "-file", "state/block.txt", "x.example").want(2, "state/block.txt is a file of block")
}

// The sinkhole of the Corefile says which lines of a hosts file block, also in the file of -file.
func TestAFileOfTheCorefileIsReadAsTheServerReadsIt(t *testing.T) {
	ownWorld(t, "respond sinkhole 192.0.2.7\n  block block.txt")
	write(t, "block.txt", "192.0.2.7 sunk.example\nbad.example\n")
	run(t, "block", "-list", "-file", "./block.txt").want(0, "block.txt:1: 192.0.2.7 sunk.example\n")
	run(t, "block", "-remove", "-file", "./block.txt", "sunk.example").want(0, "sunk.example: removed from block.txt (1 line)")
}

func TestAnEditKeepsModeOwnerAndSymlink(t *testing.T) {
	ownWorld(t, "allow link.txt\n  block block.txt")
	testkit.Must(t, errors.Join(os.Mkdir("real", 0o755), os.Rename("allow.txt", "real/allow.txt"), os.Chmod("real/allow.txt", 0o640), os.Symlink("real/allow.txt", "link.txt")))
	_ = os.Chown("real/allow.txt", 12345, 23456) // only root may give files away
	before, err := os.Stat("real/allow.txt")
	testkit.Must(t, err)
	run(t, "allow", "x.example").want(0)
	after, err := os.Stat("real/allow.txt")
	testkit.Must(t, err)
	expect(t, "mode", after.Mode(), 0o640)
	owner := func(i os.FileInfo) []string {
		return regexp.MustCompile(`[UG]id:\d+`).FindAllString(fmt.Sprintf("%+v", i.Sys()), -1)
	}
	expect(t, "owner", owner(after), owner(before))
	expect(t, "it is the same file", os.SameFile(before, after), false)
	testkit.WantParts(t, read(t, "real/allow.txt"), "\nx.example\n")
	target, err := os.Readlink("link.txt")
	testkit.Must(t, err)
	expect(t, "the symlink leads to", target, "real/allow.txt")
	files, err := os.ReadDir("real")
	testkit.Must(t, err)
	expect(t, "files", len(files), 1)
}

func TestConcurrentEditsLoseNoLine(t *testing.T) {
	testkit.Long(t)
	const processes = 20
	dir := ownWorld(t, "allow allow.txt\n  block block.txt")
	program, err := os.Executable()
	testkit.Must(t, err)
	testkit.Must(t, os.Symlink(program, "safebrowsing")) // see TestMain
	var wg sync.WaitGroup
	for i := range processes {
		wg.Go(func() {
			args := []string{"allow", "-for", "1h", fmt.Sprintf("h%d.example", i), fmt.Sprintf("i%d.example", i)}
			out, err := exec.Command(filepath.Join(dir, "safebrowsing"), args...).CombinedOutput()
			testkit.Is(t, string(out), err, nil)
		})
	}
	wg.Wait()
	text := read(t, "allow.txt")
	for i := range processes {
		testkit.WantParts(t, text, fmt.Sprintf("\nh%d.example # until ", i), fmt.Sprintf("\ni%d.example # until ", i))
	}
	testkit.WantStart(t, text, "# mine\n\na.example # Bob\n")
	expect(t, "lines", strings.Count(text, "\n"), 3+2*processes)
}
