package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/urfave/cli/v3"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// setupWorld is what setup works on; tests have another one.
type setupWorld struct {
	root     string // before the paths of all files
	see      func(root string) *machine
	run      func(ctx context.Context, words []string) error
	question func(ctx context.Context, q *question) error
}

func setup() *cli.Command { return setupIn(setupWorld{"/", see, runCommand, askServer}) }

func setupIn(w setupWorld) *cli.Command {
	return &cli.Command{
		Name:  "setup",
		Usage: "configure the package: key, network, port 53",
		Description: `Asks for the API key, which it tries at once, for whom to serve, for the resolvers
to forward to, and what to do about another resolver on port 53. Then it writes the
key and the Corefile, starts the server, asks it for a name, and says what to enter
in the router. Without a key it offers public lists.

Each answer can be a flag. A file that is there is copied before it is replaced. If a
step fails, everything is as before. With -dry-run nothing is changed.

   sudo safebrowsing setup
   sudo safebrowsing setup -dry-run
   sudo safebrowsing setup -key-file key.txt -serve 192.168.1.0/24 -upstream 9.9.9.9 -yes
   sudo safebrowsing setup -no-key -lists all -serve machine -upstream tls://9.9.9.9%dns.quad9.net -yes
   sudo safebrowsing setup -key-file key.txt -protocol webrisk -budget 200 -serve all -yes`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "key-file", Usage: "read the key from `FILE`"},
			&cli.BoolFlag{Name: "no-key", Usage: "go without a key, or with the one that is there"},
			&cli.StringFlag{Name: "endpoint", Usage: "ask the server at this `URL`, such as a relay of your own"},
			&cli.StringFlag{Name: "protocol", Usage: "the key is for this `PROTOCOL`: v5, or webrisk for commercial use", Value: "v5"},
			&cli.UintFlag{Name: "budget", Usage: "with webrisk: the most searches a day, `COUNT`"},
			&cli.StringFlag{Name: "lists", Usage: "the `NAMES` of public lists, separated by commas; all or none"},
			&cli.StringFlag{Name: "serve", Usage: "the `NETWORKS` to serve, separated by commas; machine for this machine only, or all"},
			&cli.StringFlag{Name: "upstream", Usage: "the `ADDRESSES` of resolvers to forward to, separated by commas; also tls://ADDRESS%NAME"},
			&cli.BoolFlag{Name: "yes", Usage: "do what is proposed about another resolver on port 53"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would be written and run"},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := alone(c, nil); err != nil {
				return err
			}
			root := c.Root()
			s := &settingUp{setupWorld: w, asker: newAsker(root.Reader, root.Writer), flags: c, machine: w.see(w.root)}
			return s.do(ctx)
		},
	}
}

// settingUp is one run of setup.
type settingUp struct {
	setupWorld
	*asker
	flags   *cli.Command
	machine *machine
	copies  []written // files that were written, in order
}

// written is a file that was replaced.
type written struct {
	path string
	copy string // of what was there; "": there was no file
}

func (s *settingUp) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *settingUp) do(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(s.root, setupFolder)); err != nil {
		return fmt.Errorf("%w: setup configures the package, which has this folder. For a CoreDNS of your own see README.md", err)
	}
	a, err := s.answers(ctx)
	if err != nil {
		return err
	}
	if s.machine.unseen {
		s.say("Port 53 has a process that cannot be seen, and what follows may be wrong: use sudo.")
	}
	p, err := s.place(ctx, a)
	if err != nil {
		return err
	}
	if itself := asksItself(a, p); itself != "" {
		return fmt.Errorf("the server would ask itself at %s: give another resolver to forward to with -upstream", itself)
	}
	if line := alsoAsked(s.machine, p); line != "" {
		return fmt.Errorf("%s would also ask another resolver, which blocks nothing, by %s. Take out such lines, and run setup again", strings.TrimSuffix(p.unit, ".service"), line)
	}
	if s.machine.unread && p.file != nil && p.file.path == dnsmasqFile {
		return fmt.Errorf("dnsmasq does not read %s, where setup would lead it to this server: add conf-dir=%[1]s to /etc/dnsmasq.conf, and run setup again", path.Dir(dnsmasqFile))
	}
	plan := planFor(s.machine, a, p)
	s.say("")
	if s.flags.Bool("dry-run") {
		s.print(plan)
		return nil
	}
	for i, step := range plan.steps {
		if err := s.step(ctx, step); err != nil {
			return s.back(plan.steps[:i+1], err)
		}
	}
	s.say("\nDone. What is left to you:")
	for _, line := range append(plan.tells, `See "sudo safebrowsing status"; the lists take a minute`) {
		s.say("  * %s.", line)
	}
	return nil
}

// answers asks for all that no flag says.
func (s *settingUp) answers(ctx context.Context) (*answers, error) {
	a := &answers{endpoint: s.flags.String("endpoint")}
	var err error
	if a.protocol, a.budget, err = s.protocol(ctx); err != nil {
		return nil, err
	}
	if a.upstream, err = s.upstream(ctx); err != nil {
		return nil, err
	}
	if a.key, err = s.key(ctx, a); err != nil {
		return nil, err
	}
	if err := s.sameServer(a); err != nil {
		return nil, err
	}
	// A relay may need no key, and a key from before stays.
	alone := a.key == "" && a.endpoint == "" && !s.machine.hasKey
	if a.lists, err = s.lists(ctx, alone); err != nil {
		return nil, err
	}
	a.networks, err = s.networks(ctx)
	return a, err
}

// protocol returns the protocol that the key is for, and with Web Risk the budget. "" is v5.
func (s *settingUp) protocol(ctx context.Context) (name, budget string, err error) {
	switch name = s.flags.String("protocol"); name {
	case "v5":
		if s.flags.IsSet("budget") {
			return "", "", errors.New("-budget is for -protocol webrisk: Safe Browsing costs nothing")
		}
		return "", "", nil
	case "webrisk":
	default:
		return "", "", fmt.Errorf("-protocol is v5 or webrisk, not %q", name)
	}
	if s.flags.IsSet("budget") {
		budget = strconv.FormatUint(uint64(s.flags.Uint("budget")), 10)
	} else if budget, err = s.line(ctx, "Most searches a day, at 5 US cents each", "-budget", "200"); err != nil {
		return "", "", err
	}
	if n, err := strconv.ParseUint(budget, 10, 31); err != nil || n == 0 {
		return "", "", fmt.Errorf("a budget is a number of searches a day, such as 200, not %q", budget)
	}
	return name, budget, nil
}

func (s *settingUp) upstream(ctx context.Context) ([]string, error) {
	if s.flags.IsSet("upstream") {
		return upstreams(s.flags.String("upstream"))
	}
	var now []string
	if before := s.corefileSays("forward"); len(before) > 1 { // the zone, and to whom
		now, _ = upstreams(strings.Join(before[1:], " ")) // it may name a file
	}
	if len(now) == 0 {
		for _, r := range s.machine.resolvers {
			now = append(now, r.String())
		}
	}
	if len(now) == 0 {
		now = []string{"9.9.9.9", "149.112.112.112"}
	}
	text, err := s.line(ctx, "Forward to which resolvers", "-upstream", strings.Join(now, " "))
	if err != nil {
		return nil, err
	}
	return upstreams(text)
}

// key returns a key that the server accepts, or "".
func (s *settingUp) key(ctx context.Context, a *answers) (string, error) {
	if s.flags.Bool("no-key") {
		return "", nil
	}
	try, works := func(key string) error { return tryKey(ctx, a.endpoint, key, plain(a.upstream)) }, "The server accepts the key."
	if a.protocol != "" { // it has no request that tries a key and costs nothing
		try, works = say.CheckKey, "Whether Web Risk accepts the key shows when the server has asked it: see \"sudo safebrowsing doctor\"."
	}
	if file := s.flags.String("key-file"); file != "" {
		key, err := say.ReadKey(file)
		if err == nil {
			err = try(key)
		}
		if err != nil {
			return "", fmt.Errorf("trying the key: %w", err)
		}
		s.say("%s", works)
		return key, nil
	}
	if a.endpoint != "" {
		return "", s.maySend(ctx, a.endpoint)
	}
	if a.protocol != "" {
		s.say("A key of the Web Risk API needs a project with a billing account: %s/apis/credentials", cloudConsole)
	} else {
		s.say("A key of the Safe Browsing API is free, for non-commercial use; others need -protocol webrisk: %s/apis/credentials", cloudConsole)
	}
	question := "Key, which is not shown (Enter: continue without one)"
	if s.machine.hasKey {
		question = "Key, which is not shown (Enter: keep the one that is there)"
	}
	for {
		key, err := s.hidden(ctx, question, "-key-file or -no-key")
		if err != nil || key == "" {
			return "", err
		}
		refused := try(key)
		if refused == nil {
			s.say("%s", works)
			return key, nil
		}
		s.say("It does not work: %v.", refused)
		if _, answered := errors.AsType[*keyRefusal](refused); !answered && say.CheckKey(key) == nil {
			if use, err := s.yes(ctx, "Use it all the same", "-key-file"); err != nil || use {
				return key, err
			}
		}
	}
}

// maySend returns an error unless there is no key from before, or the operator wants a server to get it: it may be
// another server's.
func (s *settingUp) maySend(ctx context.Context, endpoint string) error {
	if !s.machine.hasKey {
		return nil
	}
	send, err := s.yes(ctx, "Send the key that is there to "+endpoint, "-key-file or -no-key")
	if err == nil && !send {
		err = fmt.Errorf("give the key for %s with -key-file, or take %s away", endpoint, path.Join(setupFolder, "safebrowsing.key"))
	}
	return err
}

// sameServer returns an error if a key that stays would go to another server than by the Corefile that is there, and no
// flag says so.
func (s *settingUp) sameServer(a *answers) error {
	if a.key != "" || !s.machine.hasKey {
		return nil
	}
	for _, word := range []string{"protocol", "endpoint"} {
		if words := s.corefileSays(word); len(words) > 0 && !s.flags.IsSet(word) {
			return fmt.Errorf("by the Corefile the key that is there is for %s %s: give -%[1]s %[2]s, another -%[1]s, or another key with -key-file", word, words[0])
		}
	}
	return nil
}

// corefileLines returns what follows a word in the lines of the Corefile that begin with it.
func (s *settingUp) corefileLines(word string) (all [][]string) {
	text, _ := os.ReadFile(filepath.Join(s.root, setupFolder, "Corefile"))
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == word {
			all = append(all, words[1:])
		}
	}
	return all
}

// corefileSays returns what follows a word in the first such line.
func (s *settingUp) corefileSays(word string) []string {
	if all := s.corefileLines(word); len(all) > 0 {
		return all[0]
	}
	return nil
}

// lists returns the public lists to use. They are offered to those who have nothing else; the Corefile's own stay.
func (s *settingUp) lists(ctx context.Context, alone bool) (now []publicList, err error) {
	if s.flags.IsSet("lists") {
		return chosenLists(s.flags.String("lists"))
	}
	var names []string
	for _, l := range publicLists {
		if slices.ContainsFunc(s.corefileLines("block"), func(words []string) bool { return words[0] == l.url }) {
			now, names = append(now, l), append(names, l.name)
		}
	}
	if !alone {
		if len(now) > 0 {
			s.say("Public lists of the Corefile stay: %s. Flag -lists says which ones, or none.", strings.Join(names, ", "))
		}
		return now, nil
	}
	s.say("Public lists, from their makers and under their licences:")
	for i, l := range publicLists {
		s.say("  %d  %s (%s): %s", i+1, l.name, l.licence, l.about)
	}
	return choose(ctx, s, "Which ones", "-lists", cmp.Or(strings.Join(names, ","), "all"), chosenLists)
}

func (s *settingUp) networks(ctx context.Context) ([]network, error) {
	if s.flags.IsSet("serve") {
		return chosenNetworks(s.machine, s.flags.String("serve"))
	}
	s.say("Whom to serve:\n  0  this machine only")
	for i, n := range s.machine.networks {
		while := ""
		if n.goes {
			while = ", while the router announces it"
		}
		s.say("  %d  %s, on %s, as %s%s", i+1, n.prefix, n.name, n.address, while)
	}
	// By default the private networks, IPv4 and IPv6, of the first interface that has one. Who is in a public one, as a
	// provider's, may be anybody.
	byDefault, name := "0", ""
	for i, n := range s.machine.networks {
		switch {
		case !n.address.IsPrivate() || n.goes:
		case name == "":
			byDefault, name = strconv.Itoa(i+1), n.name
		case n.name == name:
			byDefault += fmt.Sprintf(",%d", i+1)
		}
	}
	return choose(ctx, s, "Whom", "-serve", byDefault, func(text string) ([]network, error) { return chosenNetworks(s.machine, text) })
}

// place says who has port 53, and asks whether to do what is proposed.
func (s *settingUp) place(ctx context.Context, a *answers) (place, error) {
	p := placeFor(s.machine, a.networks)
	if p.by == nil {
		return p, nil
	}
	s.say("%s.", p.says)
	if s.flags.Bool("yes") {
		return p, nil
	}
	do, err := s.yes(ctx, "Do that", "-yes")
	if err == nil && !do {
		p = behind(p.by)
	}
	return p, err
}

// print prints a plan.
func (s *settingUp) print(plan setupPlan) {
	for _, step := range plan.steps {
		switch {
		case step.file != nil:
			text := step.file.text
			if step.file.secret {
				text = "(the key)\n"
			}
			s.say("write %s (mode %o)\n    %s", step.file.path, step.file.mode, strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    "))
		case step.run != nil:
			s.say("run %s", strings.Join(step.run, " "))
		default:
			s.say("ask %s for %s", step.ask.at, step.ask.name)
		}
	}
	for _, line := range plan.tells {
		s.say("tell: %s.", line)
	}
}

func (s *settingUp) step(ctx context.Context, step step) error {
	switch {
	case step.file != nil:
		return s.write(step.file)
	case step.run != nil:
		s.say("$ %s", strings.Join(step.run, " "))
		return s.run(ctx, step.run)
	}
	if err := s.question(ctx, step.ask); err != nil {
		return err
	}
	if step.ask.blocked {
		s.say("The server blocks %s.", step.ask.name)
	} else {
		s.say("%s answers for %s.", step.ask.at, step.ask.name)
	}
	return nil
}

// write replaces a file. What was there stays beside it as it was, with its owner and mode, a link as a link; the
// same text is left alone. The copy's name ends with ~: dnsmasq reads each other file of its folder (dnsmasq(8),
// --conf-dir).
func (s *settingUp) write(f *setupFile) error {
	path, mode := filepath.Join(s.root, f.path), f.mode
	if before, err := os.ReadFile(path); err == nil && string(before) == f.text {
		if f.secret {
			return os.Chmod(path, mode) // it may have been written by hand
		}
		return nil
	}
	copied := path + "." + time.Now().Format("2006-01-02-150405.000000~")
	err := os.Link(path, copied)
	switch info, missing := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		copied, err = "", nil
	case err != nil || missing != nil: // a link may lead to nothing
	case f.secret:
		err = os.Chmod(copied, mode)
	default:
		mode = info.Mode().Perm()
	}
	if err != nil {
		return fmt.Errorf("keeping %s: %w", path, err)
	}
	if dir := filepath.Dir(path); !exists(dir) { // all may read it, whatever the umask is: systemd-resolved is a user of its own
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
			return err
		}
	}
	if err := replace(path, f.text, mode); err != nil {
		os.Remove(copied)
		return fmt.Errorf("writing %s: %w", path, err)
	}
	s.copies = append(s.copies, written{path, copied})
	also := ""
	if copied != "" {
		also = ". The old one is " + copied
	}
	s.say("Wrote %s%s.", path, also)
	return nil
}

func replace(path, text string, mode fs.FileMode) error {
	return files.ReplaceLike(path, func(f *os.File) error {
		_, err := io.WriteString(f, text)
		return errors.Join(err, f.Chmod(mode))
	})
}

// back undoes steps after one has failed: first the files, then the commands that read them.
func (s *settingUp) back(steps []step, cause error) error {
	// An interrupt is a cause, too, and must not stop this.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var all []error
	for _, w := range slices.Backward(s.copies) {
		if w.copy == "" {
			all = append(all, os.Remove(w.path))
		} else {
			all = append(all, os.Rename(w.copy, w.path))
		}
	}
	for _, step := range slices.Backward(steps) {
		if step.undo != nil {
			all = append(all, s.run(ctx, step.undo))
		}
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("%w. Not everything is as before: %w", cause, err)
	}
	return fmt.Errorf("%w. Everything is as before", cause)
}

// runCommand runs a command. Its error has what it printed last.
func runCommand(ctx context.Context, words []string) error {
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	out, err := c.CombinedOutput()
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, say.Shown(string(lines[len(lines)-1])))
	}
	return nil
}

// askTimeout is how long a server may take to answer after its start.
const askTimeout = 30 * time.Second

// askServer asks a server until it answers as it should, and the time is over.
func askServer(ctx context.Context, q *question) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for {
		answer, err := askOnce(ctx, q.at, q.name, dns.TypeA)
		switch {
		case err == nil && q.blocked && isBlocked(answer):
			return nil
		case err == nil && q.blocked:
			err = fmt.Errorf("it does not block %s, which is in block.txt: %s", q.name, dns.RcodeToString[answer.Rcode])
		case err == nil && answer.Rcode != dns.RcodeServerFailure && answer.Rcode != dns.RcodeRefused:
			return nil
		case err == nil:
			err = fmt.Errorf("the answer for %s, which it forwards, is %s", q.name, dns.RcodeToString[answer.Rcode])
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("asking the server at %s: %w. \"journalctl -u %s\" says more", q.at, err, setupUnit)
		case <-time.After(time.Second / 2):
		}
	}
}

// isBlocked reports whether an answer says so by its Extended DNS Error (RFC 8914, section 4.16).
func isBlocked(answer *dns.Msg) bool {
	o := answer.IsEdns0()
	return o != nil && slices.ContainsFunc(o.Option, func(e dns.EDNS0) bool {
		ede, ok := e.(*dns.EDNS0_EDE)
		return ok && ede.InfoCode == dns.ExtendedErrorCodeBlocked
	})
}
