module github.com/coredns-safebrowsing/safebrowsing/bench

go 1.26.0

require (
	github.com/coredns-safebrowsing/safebrowsing v0.0.0
	github.com/miekg/dns v1.1.73
	github.com/prometheus/procfs v0.22.0
	golang.org/x/sys v0.50.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/coredns-safebrowsing/safebrowsing => ../
