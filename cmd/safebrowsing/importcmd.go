package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// What import does:
//
//	files of another program ──▶ imported ──▶ Corefile, block.txt, allow.txt, and what is left out

const importHelp = `Reads the configuration of another program and writes a Corefile, block.txt and
allow.txt into a folder. Nothing else is changed, and no request is sent. What cannot
come along is printed with its file and line. The Corefile names the folder: choose
with -out where it stays. A file that is there is not replaced.

   safebrowsing import AdGuardHome.yaml
   safebrowsing import -dry-run /etc/blocky/config.yml
   safebrowsing import -out /etc/coredns/imported /etc/unbound/unbound.conf
   safebrowsing import /etc/pihole/pihole.toml adlist.csv domainlist.csv

For Pi-hole, these two commands write its tables:

   ` + adlistCommand + `
   ` + domainlistCommand + `

pihole.toml of Pi-hole 6 has its upstreams. A backup of Pi-hole 5 (pi-hole-….tar.gz)
and its JSON files are read, too. A zone file with policies (RPZ) is used where it is.`

// peers are the programs whose configuration is read.
var peers = []string{"pihole", "adguardhome", "blocky", "rpz"}

// The most that is read. A configuration is written by hand, and small.
const (
	maxImport = 16 << 20 // bytes of a file, and of a backup when unpacked
	maxNames  = 100_000  // own names
	maxURLs   = 1_000    // lists
)

func importCommand() *cli.Command {
	return &cli.Command{
		Name:        "import",
		Usage:       "make a Corefile from the configuration of Pi-hole, AdGuard Home, blocky or Unbound",
		ArgsUsage:   "PATH...",
		Description: importHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "from", Usage: "the files come from this `PROGRAM`: " + strings.Join(peers, ", ") + " (default: detected)"},
			&cli.StringFlag{Name: "out", Usage: "write into this `FOLDER`", Value: "imported"},
			&cli.StringFlag{Name: "upstream", Usage: "forward to these `ADDRESSES`, separated by commas, and not where the configuration says"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be written"},
			jsonFlag(),
		},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.NArg() == 0 {
				return errors.New("import takes the files of a configuration, see safebrowsing import -h")
			}
			m := &imported{}
			if text := c.String("upstream"); c.IsSet("upstream") {
				var err error
				if m.forward, err = upstreams(text); err != nil {
					return err
				}
				m.told = true
			}
			if err := m.read(c.String("from"), c.Args().Slice()); err != nil {
				return err
			}
			return m.make(newConsole(c), c.String("out"), c.Bool("dry-run"))
		},
	}
}

// read reads files, which must belong to one program.
func (m *imported) read(from string, paths []string) error {
	if from != "" && !slices.Contains(peers, from) {
		return fmt.Errorf("-from is %s, not %q", strings.Join(peers, ", "), from)
	}
	for _, path := range paths {
		raw, err := files.Read(path, maxImport)
		if errors.Is(err, files.ErrSize) {
			return fmt.Errorf("%s has more than %s: this is no configuration; lists come along by their address", path, say.Size(maxImport))
		}
		if err != nil {
			return err
		}
		m.file = path
		peer, err := peerOf(path, raw)
		switch {
		case err != nil:
			return fmt.Errorf("%s %w", path, err)
		case from == "" && peer == "":
			return fmt.Errorf("%s is no file that import knows: say with -from whose it is", path)
		case from != "":
			peer = from
		}
		if m.from != "" && m.from != peer {
			return fmt.Errorf("%s belongs to %s, and another file to %s: import them one by one, each into a folder of its own", path, peer, m.from)
		}
		m.from = peer
		if err := map[string]func([]byte) error{"pihole": m.pihole, "adguardhome": m.adguardhome, "blocky": m.blocky, "rpz": m.rpz}[peer](raw); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if m.unbound != nil {
		m.unbound.whole()
	}
	return m.bounded()
}

// peerOf returns whose file this is, "" if that is not known. It is an error if the file can be of
// no use.
func peerOf(path string, raw []byte) (string, error) {
	text := string(raw)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(text, w) || strings.Contains(text, "\n"+w) })
	}
	switch {
	case strings.HasPrefix(text, "SQLite format 3\x00"):
		return "", errors.New("is a database, and only Pi-hole's own program reads it surely. Run there:\n   " + adlistCommand + "\n   " + domainlistCommand + "\nand import the two files")
	case strings.HasPrefix(text, "PK\x03\x04"):
		return "", errors.New("is a backup of Pi-hole 6, which holds a database. Run on the Pi-hole:\n   " + adlistCommand + "\n   " + domainlistCommand + "\nand import the two files")
	case strings.HasPrefix(text, "\x1f\x8b"), strings.HasPrefix(text, "["), has("PIHOLE_DNS_"), isTable(text), isPiholeTOML(text), isEmptyTable(path, raw):
		return "pihole", nil
	case has("user_rules:", "whitelist_filters:", "schema_version:"):
		return "adguardhome", nil
	case has("blocking:", "upstreams:", "upstream:"):
		return "blocky", nil
	case unboundClause.Match(raw), has("$TTL", "$ORIGIN"), ownlistReads(raw):
		return "rpz", nil
	}
	return "", nil
}

// ownlistReads reports whether an own list would have entries from a zone file.
func ownlistReads(raw []byte) bool {
	sum, _, err := ownlist.Survey(strings.NewReader(string(raw)), ownlist.Config{})
	return err == nil && sum.Entries > 0 && strings.Contains(strings.ToUpper(string(raw)), "CNAME")
}

// importReport is what -json prints.
type importReport struct {
	From    string         `json:"from"`
	Folder  string         `json:"folder"`
	Written bool           `json:"written"`
	Block   importCount    `json:"block"`
	Allow   importCount    `json:"allow"`
	Forward []string       `json:"forward"`
	Left    []leftOut      `json:"left"`
	Counts  map[string]int `json:"counts"` // of Left, by What
	Files   []importFile   `json:"files"`
}

// importCount counts what blocks, or what is allowed.
type importCount struct {
	Lists int `json:"lists"`
	Names int `json:"names"`
}

// importFile is a file that is made.
type importFile struct {
	Path string `json:"path"`
	Text text   `json:"text"`
}

// make writes the files, or prints them.
func (m *imported) make(o *console, folder string, dry bool) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	all, err := m.files(folder)
	if err != nil {
		return err
	}
	if !dry {
		if err := writeNew(folder, all); err != nil {
			return err
		}
	}
	r := importReport{From: m.from, Folder: folder, Written: !dry, Forward: m.forward, Left: append([]leftOut{}, m.left...), Counts: map[string]int{}, Files: all}
	for allow, n := range map[bool]*importCount{false: &r.Block, true: &r.Allow} {
		n.Lists, n.Names = m.count(allow)
	}
	for _, l := range m.left {
		r.Counts[l.What]++
	}
	if o.json {
		o.object(r)
	} else {
		r.print(o)
	}
	return o.end(false)
}

func (r *importReport) print(o *console) {
	if !r.Written {
		for _, f := range r.Files {
			o.printf("%s\n    %s\n\n", say.Shown(f.Path), strings.ReplaceAll(strings.TrimSuffix(printable(string(f.Text)), "\n"), "\n", "\n    "))
		}
	}
	for _, l := range r.Left {
		o.printf("%s\n", say.Shown(l.String()))
	}
	if len(r.Left) > 0 {
		var counts []string
		for _, l := range r.Left {
			if word := fmt.Sprintf("%s %d", l.What, r.Counts[l.What]); !slices.Contains(counts, word) {
				counts = append(counts, word)
			}
		}
		o.printf("\n%s not come along, or not as it was: %s.\n", say.Count(len(r.Left), "line does", "lines do"), strings.Join(counts, ", "))
	}
	verb := "Written"
	if !r.Written {
		verb = "Would write"
	}
	o.printf("%s to %s: Corefile, block.txt (%s), allow.txt (%s). By URL or file: %s to block, %d to allow.\n", verb, say.Shown(r.Folder),
		say.Count(r.Block.Names, "line", "lines"), say.Count(r.Allow.Names, "line", "lines"), say.Count(r.Block.Lists, "list", "lists"), r.Allow.Lists)
	if r.Written {
		o.printf("Next: safebrowsing validate %s\n", say.Shown(filepath.Join(r.Folder, "Corefile")))
	}
}

// printable is text of several lines that a terminal can show.
func printable(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.ReplaceAll(say.Shown(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")), "\t", " ") + "\n")
	}
	return b.String()
}

// writeNew writes files into a folder, and none if one of them is there.
func writeNew(folder string, all []importFile) error {
	for _, f := range all {
		if _, err := os.Lstat(f.Path); err == nil {
			return fmt.Errorf("%s is there: remove it, or choose another folder with -out", f.Path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, f := range all {
		if err := replace(f.Path, string(f.Text), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", f.Path, err)
		}
	}
	return nil
}
