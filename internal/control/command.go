package control

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
)

// Command is what people ask a running server.
type Command struct {
	Word    string   // see Words
	Names   []string // hosts; of pause a duration
	For     string   // of allow: a duration
	Until   string   // of allow: a time
	Zone    string   // of pause and resume; "": all
	Keep    bool     // of pause
	Remove  bool     // of allow and block
	Confirm bool     // of why: ask the service
	Short   bool     // of status: only what matters
	JSON    bool
	Tool    string   // the command that people write before a word
	Folders []string // where doors are
	Unread  error    // why the Corefile, which may name other folders, cannot be read
}

// Words are the words of commands, in the order of a help.
var Words = []string{"status", "why", "blocked", "lists", "pause", "resume", "allow", "block", "unblock"}

// Run asks, and prints the answer. It returns say.ErrBadNews if the network is not protected, or a name does
// not pass.
func (c *Command) Run(ctx context.Context, out io.Writer) error {
	client, err := Find(ctx, c.Folders)
	if down, ok := errors.AsType[*NotRunningError](err); ok {
		down.Unread = c.Unread
	}
	if err != nil {
		return err
	}
	p := &status.Printer{W: out, Colour: !c.JSON && IsTerminal(out), Tool: c.Tool}
	bad, err := c.ask(ctx, client, p)
	switch {
	case err != nil:
		return err
	case p.Err != nil:
		return fmt.Errorf("printing: %w", p.Err)
	case bad:
		return say.ErrBadNews
	}
	return nil
}

// ask asks for what the words say.
func (c *Command) ask(ctx context.Context, client *Client, p *status.Printer) (bad bool, err error) {
	if needsNames := []string{"why", "allow", "block", "unblock"}; slices.Contains(needsNames, c.Word) && len(c.Names) == 0 {
		return false, fmt.Errorf("%s takes names", c.Word)
	}
	if alone := []string{"status", "lists", "blocked"}; slices.Contains(alone, c.Word) && len(c.Names) > 0 {
		return false, fmt.Errorf("%s takes no argument such as %q", c.Word, c.Names[0])
	}
	switch c.Word {
	case "status":
		var r status.Report
		text, err := client.Get(ctx, "/status", nil, &r)
		c.print(p, text, err, func() { map[bool]func(*status.Report){true: p.Short, false: p.Long}[c.Short](&r) })
		return !r.Protects(), err
	case "lists":
		var l Lists
		text, err := client.Get(ctx, "/lists", nil, &l)
		c.print(p, text, err, func() { p.Lists(&status.Report{At: l.At, Services: l.Services, Blocks: l.Own}) })
		return false, err
	case "blocked":
		var names []status.Blocked
		text, err := client.Get(ctx, "/blocked", nil, &names)
		c.print(p, text, err, func() { p.Blocked(names, time.Now()) })
		return false, err
	case "why":
		var unnamed []string // are told at the end
		bad, err = c.each(func(name string) (bool, error) {
			h, ok := status.HostOf(name)
			if !ok {
				unnamed = append(unnamed, strconv.Quote(name))
				return false, nil
			}
			return c.why(ctx, client, p, h.String())
		})
		if err == nil && len(unnamed) > 0 {
			err = fmt.Errorf("not a host name or a URL: %s", strings.Join(unnamed, ", "))
		}
		return bad, err
	case "pause", "resume":
		return false, c.pause(ctx, client, p)
	case "allow", "block", "unblock":
		for _, name := range c.Names { // none is changed unless all are hosts
			if _, err := block.EntryHost(name); err != nil {
				return false, err
			}
		}
		return c.each(func(name string) (bool, error) { return c.change(ctx, client, p, name) })
	}
	return false, fmt.Errorf("there is no command %q: use %s", c.Word, strings.Join(Words, ", "))
}

func (c *Command) each(do func(name string) (bool, error)) (bad bool, err error) {
	for _, name := range c.Names {
		one, err := do(name)
		if err != nil {
			return bad, err
		}
		bad = bad || one
	}
	return bad, nil
}

// print prints an answer, as the server wrote it or for people.
func (c *Command) print(p *status.Printer, text []byte, err error, forPeople func()) {
	switch {
	case err != nil:
	case c.JSON:
		_, p.Err = p.W.Write(text)
	default:
		forPeople()
	}
}

func (c *Command) why(ctx context.Context, client *Client, p *status.Printer, name string) (bad bool, err error) {
	query := url.Values{"name": {name}}
	if c.Confirm {
		query.Set("confirm", "1")
	}
	var w status.Why
	text, err := client.Get(ctx, "/why", query, &w)
	c.print(p, text, err, func() { p.Why(&w) })
	return w.Verdict != status.VerdictPasses, err
}

func (c *Command) pause(ctx context.Context, client *Client, p *status.Printer) error {
	if c.Word == "pause" && len(c.Names) == 1 && c.Names[0] == "off" {
		c.Word, c.Names = "resume", nil
	}
	switch {
	case c.Word == "resume" && len(c.Names) > 0:
		return errors.New("resume takes no names")
	case c.Word == "pause" && len(c.Names) == 0:
		return c.pauses(ctx, client, p)
	case len(c.Names) > 1:
		return errors.New("pause takes one duration such as 10m, or off")
	}
	o := order{Zone: c.Zone, Keep: c.Keep}
	if len(c.Names) == 1 {
		o.For = c.Names[0]
	}
	var all []block.Pause
	text, err := client.Post(ctx, "/"+c.Word, o, &all)
	c.print(p, text, err, func() { printPauses(p, all) })
	return err
}

// pauses prints those that are in force.
func (c *Command) pauses(ctx context.Context, client *Client, p *status.Printer) error {
	var r status.Report
	text, err := client.Get(ctx, "/status", nil, &r)
	c.print(p, text, err, func() {
		none := true
		for _, b := range r.Blocks {
			if b.Paused.After(r.At) {
				p.Line("Paused until %s: the server blocks for %s", say.Time(b.Paused), b.Zones)
				none = false
			}
		}
		if none {
			printPauses(p, nil)
		}
	})
	return err
}

func printPauses(p *status.Printer, all []block.Pause) {
	if len(all) == 0 {
		p.Line("Nothing is paused.")
	}
	for _, x := range all {
		restart := "or until CoreDNS is restarted"
		if x.Keep {
			restart = "also if CoreDNS is restarted"
		}
		p.Line("Paused until %s, %s: %s", say.Time(x.Until), restart, x.Where())
	}
}

func (c *Command) change(ctx context.Context, client *Client, p *status.Printer, name string) (bad bool, err error) {
	until := c.Until
	if until != "" {
		t, err := block.EndOf("", until, time.Now())
		if err != nil {
			return false, err
		}
		until = t.Format(time.RFC3339)
	}
	var done block.Changed
	text, err := client.Post(ctx, "/"+c.Word, order{Name: name, For: c.For, Until: until, Remove: c.Remove}, &done)
	c.print(p, text, err, func() { p.Err = PrintChange(p.W, &done) })
	return done.But != "", err
}

// PrintChange prints what has become of a change of an own list.
func PrintChange(w io.Writer, done *block.Changed) error {
	p := &status.Printer{W: w}
	until, again := "", ""
	if !done.Until.IsZero() {
		until = " until " + say.Time(done.Until)
	}
	if !done.Changed {
		again = " already"
	}
	switch {
	case done.Action == "remove" && !done.Changed:
		p.Line("%s: no list that can be edited has an entry of it", done.Host)
	case done.Action == "remove":
		p.Line("%s: removed from %s (%s)", done.Host, done.File, say.Count(len(done.Removed), "line", "lines"))
	default:
		p.Line("%s: %sed%s%s, with all names below it, by %s, line %d", done.Host, done.Action, until, again, done.File, done.Line)
	}
	for _, line := range done.Ended {
		p.Line("   removed, as it has ended: %s", line)
	}
	if done.But != "" {
		p.Line("But %s", done.But)
	}
	return p.Err
}

// IsTerminal reports whether a person may be reading w. It is also true for /dev/null, which does no
// harm.
func IsTerminal(w io.Writer) bool {
	if masked, ok := w.(say.MaskedWriter); ok {
		w = masked.W
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

const usage = `Ask the CoreDNS that runs here:

   %[1]s status             does it protect, and by what
   %[1]s why NAME           is a name blocked, and why [-confirm: ask the service]
   %[1]s blocked            what was blocked in the last hour
   %[1]s lists              the lists, and when they were fetched
   %[1]s pause 10m          let every name pass for a while
   %[1]s resume             end that
   %[1]s allow NAME         let a name pass [-for 1h, -until 18:00, -remove]
   %[1]s block NAME         block a name
   %[1]s unblock NAME       take that back

With -json the answer is JSON. Each command takes -db FOLDER, if the server has its lists in
another folder than usual. The exit status is 0 for good news and 1 for bad news.
`

// IsCommand reports whether the first argument of a program is a word of this package.
func IsCommand(args []string) bool {
	return len(args) > 1 && (args[1] == "help" || slices.Contains(Words, args[1]))
}

// Main runs the command line of a program that has no other commands, and returns its exit status.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	out, errOut = say.MaskedWriter{W: out}, say.MaskedWriter{W: errOut}
	tool := args[0][strings.LastIndexByte(args[0], '/')+1:]
	c, err := parse(tool, args[1:])
	if err == nil && c == nil {
		fmt.Fprintf(out, usage, tool)
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	if err == nil {
		err = c.Run(ctx, out)
	}
	return say.Exit(errOut, tool, err)
}

// parse reads a command line, whose flags may stand anywhere. It returns nil for a help.
func parse(tool string, args []string) (*Command, error) {
	c := &Command{Word: args[0], Tool: tool, Folders: block.Folders()}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(io.Discard)
	folder := f.String("db", "", "")
	f.BoolVar(&c.JSON, "json", false, "")
	switch c.Word {
	case "why":
		f.BoolVar(&c.Confirm, "confirm", false, "")
	case "allow":
		f.StringVar(&c.For, "for", "", "")
		f.StringVar(&c.Until, "until", "", "")
		f.BoolVar(&c.Remove, "remove", false, "")
	case "block":
		f.BoolVar(&c.Remove, "remove", false, "")
	case "pause", "resume":
		f.StringVar(&c.Zone, "block", "", "")
		f.BoolVar(&c.Keep, "keep", false, "")
	case "help":
		return nil, nil
	}
	for rest := args[1:]; len(rest) > 0; {
		err := f.Parse(rest)
		if errors.Is(err, flag.ErrHelp) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w, see %s help", err, tool)
		}
		if rest = f.Args(); len(rest) > 0 {
			c.Names, rest = append(c.Names, rest[0]), rest[1:]
		}
	}
	if *folder != "" {
		c.Folders = block.Beside(*folder)
	}
	return c, nil
}
