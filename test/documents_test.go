package test

import (
	"encoding/pem"
	"io/fs"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	truth "github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var repository = os.DirFS("..")

// documents returns the README and what it links to, by their paths.
func documents(t testing.TB) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "bench/*.md", "test/*.md", "deploy/*/*.md"} {
		paths, err := fs.Glob(repository, pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("Expected documents at %s, got %v", pattern, err)
		}
		for _, name := range paths {
			all[name] = file(t, name)
		}
	}
	return all
}

// found fails unless at least the least number of things were found: else a test would hold nothing.
func found(t testing.TB, what string, n, least int) {
	t.Helper()
	if n < least {
		t.Fatalf("Expected to find at least %d %s, got %d", least, what, n)
	}
}

func blocks(text, language string) (all []string) {
	for _, m := range regexp.MustCompile(`(?ms)^~~~ `+language+`\n(.*?)^~~~$`).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

func onlyBlock(t testing.TB, text, language string) string {
	t.Helper()
	all := blocks(text, language)
	if len(all) != 1 {
		t.Fatalf("Expected one block of %s, got %q", language, all)
	}
	return all[0]
}

func prose(text string) string {
	return regexp.MustCompile(`(?ms)^~~~ .*?^~~~$`).ReplaceAllString(text, "")
}

// shellLines are the lines of the blocks for a shell, without comments.
func shellLines(text string) (lines []string) {
	for _, block := range blocks(text, "sh") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, " #")
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// A name server that stays down after the machine has started again leaves a network without names.
func TestContainersOfTheDocumentsStartAgain(t *testing.T) {
	all := documents(t)
	for _, name := range []string{"README.md", "docs/install.md"} {
		containers := regexp.MustCompile(`(?m)^docker run -d .*`).FindAllString(strings.Join(blocks(all[name], "sh"), "\n"), -1)
		if len(containers) != 1 || !strings.Contains(containers[0], " --restart unless-stopped ") {
			t.Errorf("%s: expected a container that starts again, got %q", name, containers)
		}
	}
}

func TestCorefilesOfTheDocumentsAreAccepted(t *testing.T) {
	key := writeFile(t, t.TempDir(), "key", "K")
	resolv := writeFile(t, t.TempDir(), "resolv.conf", "nameserver 192.0.2.53\n")
	relay := httptest.NewTLSServer(nil)
	relay.Close()
	ca := writeFile(t, t.TempDir(), "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: relay.Certificate().Raw})))
	dnsCert, dnsKey := testkit.Certificate(t, t.TempDir(), "dns.home.example")
	replacer := strings.NewReplacer("/etc/coredns/dns.pem", dnsCert, "/etc/coredns/dns.key", dnsKey, "/etc/coredns/relay-client.key", key, "/etc/coredns/relay-ca.pem", ca, "/etc/coredns/safebrowsing.key", key, "/etc/coredns/webrisk.key", key, "/etc/resolv.conf", resolv)
	all := []string{file(t, "Corefile.example")}
	for _, text := range documents(t) {
		all = append(all, blocks(text, "corefile")...)
	}
	found(t, "Corefiles of the documents", len(all), 8)
	t.Chdir("..") // for testdata/blocklist.txt
	for _, corefile := range all {
		testkit.Is(t, corefile, caddy.ValidateAndExecuteDirectives(input(replacer.Replace(corefile)), nil, true), nil)
	}
}

// Whoever copies a Corefile must not run an open resolver: each server block says where it listens or who may ask.
func TestNoCorefileIsAnOpenResolver(t *testing.T) {
	all := make(map[string][]string)
	for name, text := range documents(t) {
		all[name] = blocks(text, "corefile")
	}
	for _, name := range []string{"Corefile.example", "deploy/package/Corefile", "deploy/image/Corefile"} {
		all[name] = []string{file(t, name)}
	}
	tried := 0
	for name, corefiles := range all {
		for _, corefile := range corefiles {
			// What packages and the image begin with has its page for this machine only, without names, and a public list behind one #.
			for _, line := range []string{`status 127\.0\.0\.1:8053( #.*)?`, `# block https://\S+/tif\.txt`} {
				if strings.HasSuffix(name, "/Corefile") && !regexp.MustCompile(`(?m)^\s+`+line+`$`).MatchString(corefile) {
					t.Errorf("%s: expected a line %s", name, line)
				}
			}
			for _, block := range strings.Split(corefile, "\n}\n") {
				if strings.TrimSpace(block) == "" {
					continue
				}
				tried++
				testkit.Equal(t, name+": bind or acl in\n"+block, regexp.MustCompile(`(?m)^\s+(bind|acl) `).MatchString(block), true)
			}
		}
	}
	found(t, "server blocks", tried, 12)
}

// Code in the text that begins with a property, such as `unsure servfail`, is
// accepted as a line of a stanza. Placeholders, in capitals or as …, are not tried.
func TestLinesOfAStanzaInTheTextAreAccepted(t *testing.T) {
	tried := 0
	for name, text := range documents(t) {
		if strings.HasPrefix(name, "bench/") {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z_]+) ([^`A-Z…|]+)`").FindAllStringSubmatch(prose(text), -1) {
			if _, ok := config.Usages()[m[1]]; !ok {
				continue
			}
			tried++
			line := m[1] + " " + m[2]
			for _, needed := range []string{"protocol webrisk", "budget unlimited"} {
				if word, _, _ := strings.Cut(needed, " "); m[1] != word && (name == "docs/web-risk.md" || m[0] == "`protocol webrisk`") {
					line += "\n  " + needed
				}
			}
			corefile := ".:0 {\n safebrowsing {\n  endpoint http://127.0.0.1:1\n  " + line + "\n }\n}\n"
			testkit.Is(t, name+": "+line, caddy.ValidateAndExecuteDirectives(input(corefile), nil, true), nil)
		}
	}
	found(t, "lines of a stanza", tried, 8)
}

// Words with an underscore in code are properties, metrics, their labels, or words of the syntax.
func TestWordsOfTheDocumentsExist(t *testing.T) {
	text := section(t, "Syntax") + section(t, "Metrics")
	known := append(regexp.MustCompile(`[a-z0-9]+(_[a-z0-9]+)+`).FindAllString(text, -1),
		"always_nxdomain",              // of unbound
		"endpoint_ca", "endpoint_cert", // of earlier versions, in CHANGELOG.md
		"would_block", "left_out", // of log json, see TestLogOfNamesIsBoundedAndSaysWhatItLeavesOut
		"listed_late", // see TestLinesAboutLateNamesAreFew
		"alias_of",    // of explain, see TestAnAliasThatWasBlockedIsNeverDenied
	)
	for state := truth.Protected; state <= truth.NotProtected; state++ { // of the control socket
		known = append(known, state.String())
	}
	fields, told := fieldsIn(t, "updater", "lookup", "internal/ownlist", "internal/sharing"), fieldsIn(t, "cmd/safebrowsing")
	for name, text := range documents(t) {
		if !strings.HasPrefix(name, "docs/") && name != "README.md" && name != "CHANGELOG.md" {
			continue
		}
		for _, code := range regexp.MustCompile("`[^`\n]*`").FindAllString(prose(text), -1) {
			for _, m := range regexp.MustCompile(`(^|[^A-Za-z0-9_./])([a-z0-9]+(_[a-z0-9]+)+)`).FindAllStringSubmatch(code, -1) {
				if word := m[2]; !slices.Contains(known, word) && !(name == formats && fields[word]) && !(name == "docs/coverage.md" && told[word]) && !strings.HasPrefix(word, "safebrowsing_relay_") { // the relay has a test for its metrics
					t.Errorf("%s: %s: expected %s to be a property, a metric, or a word of the syntax", name, code, word)
				}
			}
		}
	}
}

const formats = "docs/formats.md"

func fieldsIn(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, dir := range dirs {
		names, err := fs.Glob(repository, dir+"/*.go")
		if err != nil || len(names) == 0 {
			t.Fatalf("Expected files in %s, got %v", dir, err)
		}
		for _, name := range names {
			for _, m := range regexp.MustCompile("`json:\"([a-z_0-9]+)").FindAllStringSubmatch(file(t, name), -1) {
				all[m[1]] = true
			}
		}
	}
	return all
}

// Links lead to a file, and to a heading in it; each page of docs is linked from the README.
func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	all := documents(t)
	linked := make(map[string]bool)
	for name, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			if target = path.Join(path.Dir(name), target); strings.HasPrefix(m[1], "#") {
				target = name
			}
			if name == "README.md" {
				linked[target] = true
			}
			if _, err := fs.Stat(repository, target); err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(all[target]), anchor) {
				t.Errorf("%s: %s: expected a heading of that name, got %q", name, m[1], anchors(all[target]))
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "docs/") && !linked[name] {
			t.Errorf("Expected a link to %s in the README", name)
		}
	}
}

// anchors are those that GitHub makes of the headings of a document. Of equal ones the second has a -1.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(text), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchor = strings.ReplaceAll(anchor, " ", "-")
		for n, plain := 1, anchor; slices.Contains(all, anchor); n++ {
			anchor = plain + "-" + strconv.Itoa(n)
		}
		all = append(all, anchor)
	}
	return all
}

// The commands of Go name packages that exist, and tests or benchmarks in them.
func TestGoCommandsOfTheDocumentsExist(t *testing.T) {
	var lines []string
	for _, text := range documents(t) {
		lines = append(lines, shellLines(text)...)
		for _, m := range regexp.MustCompile("`(go [^`]+)`").FindAllStringSubmatch(prose(text), -1) {
			lines = append(lines, m[1])
		}
	}
	tried := 0
	for _, line := range lines {
		command := regexp.MustCompile(`^go (?:-C (\S+) )?(?:run|test|build|install) `).FindStringSubmatch(line)
		if command == nil {
			continue
		}
		tried++
		dir := command[1] // that the command is run in
		var functions strings.Builder
		for _, m := range regexp.MustCompile(`\s(\.(?:/[a-z0-9/]*)?(?:/\.\.\.)?)(?:\s|$)`).FindAllStringSubmatch(line+" ", -1) {
			if strings.HasSuffix(m[1], "...") {
				continue
			}
			sources, err := fs.Glob(repository, path.Join(dir, m[1], "*.go"))
			if err != nil || len(sources) == 0 {
				t.Errorf("%s: expected a package %s", line, path.Join(dir, m[1]))
			}
			testkit.Equal(t, line+": "+m[1]+" is in the module of that directory, else go -C", sameModule(dir, path.Join(dir, m[1])), true)
			tests, _ := fs.Glob(repository, path.Join(dir, m[1], "*_test.go"))
			for _, name := range tests {
				functions.WriteString(file(t, name))
			}
		}
		for _, m := range regexp.MustCompile(` -(?:run|bench) '?([A-Za-z0-9\\|]+)`).FindAllStringSubmatch(line, -1) {
			for word := range strings.SplitSeq(strings.ReplaceAll(m[1], `\`, ""), "|") {
				function := regexp.MustCompile(`func (Test|Benchmark)\w*` + strings.TrimPrefix(word, "Test"))
				testkit.Equal(t, line+": there is a test or a benchmark "+word, function.MatchString(functions.String()), true)
			}
		}
	}
	found(t, "commands of the documents", tried, 15)
}

// A document that says which test holds a promise names one that there is. The recipes name files that exist.
func TestNamesOfTestsInTheDocumentsExist(t *testing.T) {
	var tests strings.Builder
	err := fs.WalkDir(repository, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		tests.WriteString(file(t, name))
		return nil
	})
	testkit.Must(t, err)
	named := 0
	for _, m := range regexp.MustCompile("`([a-zA-Z_./]+\\.go|\\.ci/[a-z]+)`").FindAllStringSubmatch(documents(t)["CONTRIBUTING.md"], -1) {
		_, err := fs.Stat(repository, m[1])
		testkit.Is(t, "a file that CONTRIBUTING.md names", err, nil)
	}
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
			named++
			testkit.Equal(t, name+" names "+m[1]+", which there is", strings.Contains(tests.String(), "\nfunc "+m[1]+"("), true)
		}
	}
	found(t, "tests that the documents name", named, 40)
}

// sameModule reports whether no directory between a module and a package in it has a go.mod of its own.
func sameModule(module, dir string) bool {
	for module = path.Clean(module); dir != module; dir = path.Dir(dir) {
		if _, err := fs.Stat(repository, path.Join(dir, "go.mod")); err == nil {
			return false
		}
	}
	return true
}

// Whoever finds a file in db can look it up.
func TestEachFileOfTheDirectoryIsInTheFormats(t *testing.T) {
	w := threatened(t, "evil.example.com/")
	w.run("budget 100", "block "+newListServer(t, "blocked.example\n").URL)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	testkit.Until(t, "the list by URL", func() bool { return isBlocked(w.ask("blocked.example.", dns.TypeA)) })
	w.stop()
	table, files := sectionOf(t, formats, "Files in db"), 0
	err := fs.WalkDir(os.DirFS(w.db), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		documented := regexp.MustCompile(`^own/[0-9a-f]+\.`).ReplaceAllString(name, "own/HASH.")
		documented = regexp.MustCompile(`^[a-z0-9-]+\.list$`).ReplaceAllString(documented, "NAME.list")
		documented = regexp.MustCompile(`^.+\.lock$`).ReplaceAllString(documented, "*.lock")
		testkit.WantParts(t, table, "`"+documented+"`")
		return nil
	})
	testkit.Must(t, err)
	found(t, "lists, clocks and counts", files, 8)
}
