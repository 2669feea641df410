package story

// dailyRow is a question that people have on an ordinary day, and how each server answers it.
type dailyRow struct {
	asks string
	// about is the host that NAME stands for.
	about string
	// then is what becomes of it: "passes" or "blocked"; "": nothing.
	then string
	// only the client with this address gets that; "": all do.
	client string

	ours, adguard, blocky, pihole typed
	// notFirst says why somebody needs fewer letters than we do; "": nobody does.
	notFirst string
}

// typed is what is typed to have an answer.
type typed struct {
	// line is what a shell gets. NAME and FILE in it count nothing.
	line string
	// says is in the answer, where the line can be run here; nil: it cannot.
	says []string
	// clicks are those on the page, NAME not counted; 0: not there.
	clicks int
	// instead is what there is where there is no line.
	instead string
}

// no is what there is instead of an answer.
func no(instead string) typed { return typed{instead: instead} }

// tellAdGuard is how its API is told something.
func tellAdGuard(path, json string) string {
	return "curl localhost:3000/control/" + path + " -H 'Content-Type: application/json' -d '" + json + "'"
}

const shorterName = "shorter name, no `sudo`"

// dailyRows are in an order in which each finds what it needs. What is blocked at first is bad.example by the
// service, and the others by a list of the operator.
var dailyRows = []dailyRow{
	{
		asks:     "Am I protected now?",
		ours:     typed{line: "sudo safebrowsing", says: []string{"Protected by Safe Browsing v5 and own lists, since "}},
		adguard:  typed{line: "curl localhost:3000/control/status", says: []string{`"protection_enabled":true`}, clicks: 1},
		blocky:   typed{line: "blocky blocking status", says: []string{"blocking enabled"}},
		pihole:   typed{line: "pihole status"},
		notFirst: "Pi-hole: " + shorterName + "; it says that blocking is switched on, ours also which lists are there, and since when",
	},
	{
		asks:     "What was blocked today?",
		ours:     typed{line: "sudo safebrowsing", says: []string{" names blocked, the last ", "Blocked  bad.example (se-4b (phishing)), ", "why: safebrowsing why bad.example"}},
		adguard:  typed{line: "curl localhost:3000/control/stats", says: []string{`"num_blocked_filtering":`, "bad.example"}, clicks: 1},
		blocky:   typed{line: "blocky stats", says: []string{"Top Blocked", "bad.example"}},
		pihole:   typed{line: "pihole api stats/top_domains?blocked=true"},
		notFirst: "blocky: " + shorterName + "; `statistics` has to be switched on before",
	},
	{
		asks:     "Why is NAME blocked?",
		about:    "bad.example",
		ours:     typed{line: "sudo safebrowsing why NAME", says: []string{"bad.example is blocked", "List: se-4b (phishing)", "Confirmed by the server: ", "To let it pass: ", "Let it pass for an hour:  safebrowsing allow -for 1h bad.example"}},
		adguard:  typed{line: "curl localhost:3000/control/filtering/check_host?name=NAME", says: []string{`"reason":"FilteredBlackList"`, "0.0.0.0 bad.example"}, clicks: 3},
		blocky:   typed{line: "blocky query NAME", says: []string{"BLOCKED", "lists"}},
		pihole:   typed{line: "pihole -q NAME"},
		notFirst: shorterName + ". blocky says the group of lists, Pi-hole the lists; ours the list and its line, when it was confirmed, and what lets it pass",
	},
	{
		asks:    "Who asked for NAME, which is blocked?",
		about:   "bad.example",
		ours:    typed{line: "sudo safebrowsing why NAME", says: []string{"asked by 127.0.0.1"}},
		adguard: typed{line: "curl localhost:3000/control/querylog?search=NAME", says: []string{`"client":"127.0.0.1"`}, clicks: 2},
		blocky:  typed{line: "journalctl -u blocky | grep NAME"},
		pihole:  typed{line: "pihole api queries?domain=NAME"},
	},
	{
		asks:    "Who got NAME, which passes?",
		about:   "fine.example.com",
		ours:    typed{line: "sudo safebrowsing why NAME", says: []string{"fine.example.com passes", "1 device (127.0.0.1) asked for it and got it, first at "}},
		adguard: typed{line: "curl localhost:3000/control/querylog?search=NAME", says: []string{`"client":"127.0.0.1"`}, clicks: 2},
		blocky:  typed{line: "journalctl -u blocky | grep NAME"},
		pihole:  typed{line: "pihole api queries?domain=NAME"},
	},
	{
		asks:     "Are the lists fresh?",
		ours:     typed{line: "sudo safebrowsing", says: []string{"1 phishing, ", "(fetched ", " ago)"}},
		adguard:  typed{line: "curl localhost:3000/control/filtering/status", says: []string{`"last_updated":`}, clicks: 3},
		blocky:   no("its log"),
		pihole:   typed{line: "pihole api lists"},
		notFirst: "Pi-hole: " + shorterName + "; its times are seconds since 1970",
	},
	{
		asks:    "Which upstream is asked?",
		ours:    typed{line: "sudo safebrowsing validate", says: []string{"ok       upstream  what passes is asked of 192.0.2.53, 192.0.2.54 for lan.example"}},
		adguard: typed{line: "curl localhost:3000/control/dns_info", says: []string{`"upstream_dns":`}, clicks: 3},
		blocky:  typed{line: "grep -A9 upstreams config.yml", says: []string{"127.0.0.1:"}},
		pihole:  typed{line: "pihole api stats/upstreams"},
	},
	{
		asks:    "Let NAME pass for an hour",
		about:   "shop.example",
		then:    "passes",
		ours:    typed{line: "sudo safebrowsing allow -for 1h NAME", says: []string{"shop.example: allowed until ", "with all names below it"}},
		adguard: no("for ever only"),
		blocky:  no("for ever only"),
		pihole:  no("for ever only"),
	},
	{
		asks:     "NAME is a mistake: let it pass for ever",
		about:    "false.example",
		then:     "passes",
		ours:     typed{line: "sudo safebrowsing allow NAME", says: []string{"false.example: allowed"}},
		adguard:  typed{line: tellAdGuard("filtering/set_rules", `{"rules":["@@||NAME^"]}`), says: []string{}, clicks: 3},
		blocky:   no("edit `config.yml`, restart"),
		pihole:   typed{line: "pihole allow NAME"},
		notFirst: "Pi-hole: " + shorterName,
	},
	{
		asks:    "Let NAME pass for my family only",
		about:   "kids.example",
		then:    "passes",
		client:  "127.0.0.2",
		ours:    typed{line: "sudo safebrowsing allow -file FILE NAME", says: []string{"kids.example: allowed", "kids.txt, line "}},
		adguard: typed{line: tellAdGuard("filtering/set_rules", `{"rules":["@@||NAME^$client=127.0.0.2"]}`), says: []string{}, clicks: 4},
		blocky:  no("edit `config.yml`, restart"),
		pihole:  no("groups, on its page"),
	},
	{
		asks:     "Stop everything for ten minutes",
		about:    "bad.example",
		then:     "passes",
		ours:     typed{line: "sudo safebrowsing pause 10m", says: []string{"Paused until "}},
		adguard:  typed{line: tellAdGuard("protection", `{"enabled":false,"duration":600000}`), says: []string{}, clicks: 3},
		blocky:   typed{line: "blocky block off -d 10m", says: []string{"OK"}},
		pihole:   typed{line: "pihole disable 10m"},
		notFirst: shorterName,
	},
	{
		asks:     "Go on before they are over",
		about:    "bad.example",
		then:     "blocked",
		ours:     typed{line: "sudo safebrowsing resume", says: []string{"Nothing is paused"}},
		adguard:  typed{line: tellAdGuard("protection", `{"enabled":true}`), says: []string{}, clicks: 2},
		blocky:   typed{line: "blocky block on", says: []string{"OK"}},
		pihole:   typed{line: "pihole enable"},
		notFirst: shorterName,
	},
	{
		asks:    "What does it cost today?",
		ours:    typed{line: "sudo safebrowsing", says: []string{"searches left today: at least ", " of 200", "US-$ of at most 10.00"}},
		adguard: no("nothing"),
		blocky:  no("nothing"),
		pihole:  no("nothing"),
	},
	{
		asks:    "Is the key in order, and who may read it?",
		ours:    typed{line: "sudo safebrowsing validate", says: []string{"ok       key       present"}},
		adguard: no("no key"),
		blocky:  no("no key"),
		pihole:  no("no key"),
	},
	{
		asks:     "Upgrade",
		ours:     typed{line: "sudo apt update && sudo apt upgrade"},
		adguard:  typed{line: "sudo ./AdGuardHome --update", clicks: 2},
		blocky:   no("download, replace, restart"),
		pihole:   typed{line: "sudo pihole -up"},
		notFirst: "apt upgrades the whole system; theirs upgrade themselves only",
	},
	{
		asks:     "Back up",
		ours:     typed{line: "sudo cp -r /etc/coredns-safebrowsing FILE"},
		adguard:  typed{line: "sudo cp AdGuardHome.yaml FILE"},
		blocky:   typed{line: "cp config.yml FILE"},
		pihole:   typed{line: "sudo pihole-FTL --teleporter"},
		notFirst: "ours is a folder with its whole path",
	},
	{
		asks:     "Uninstall",
		ours:     typed{line: "sudo apt purge coredns-safebrowsing"},
		adguard:  typed{line: "sudo ./AdGuardHome -s uninstall"},
		blocky:   no("remove the files"),
		pihole:   typed{line: "sudo pihole uninstall"},
		notFirst: "apt wants the name of the package",
	},
}
