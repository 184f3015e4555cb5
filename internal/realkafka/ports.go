package realkafka

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Ports come from a range out of which no system gives one to a program that
// asks for any. So those of a cluster that outlives the program that started
// it, which nobody holds, are free when one of its brokers comes back.
const (
	firstPort = 20_000
	lastPort  = 29_999
	portTries = 1000
)

// ports are free ports of 127.0.0.1 that stay reserved until release.
type ports struct {
	numbers  []int
	releases []func()
}

// reservePorts takes n different ports. Nobody else gets one of them until
// they are released, where the system allows that (Linux).
func reservePorts(n int) (*ports, error) {
	p := &ports{}
	var err error
	for try := 0; len(p.numbers) < n; try++ {
		if try == portTries {
			p.release()
			return nil, fmt.Errorf("reserve a port of 127.0.0.1: %w", err)
		}
		number := firstPort + rand.IntN(lastPort-firstPort+1)
		if slices.Contains(p.numbers, number) {
			continue
		}
		var release func()
		if release, err = holdPort(number); err == nil {
			p.numbers, p.releases = append(p.numbers, number), append(p.releases, release)
		}
	}
	return p, nil
}

// next takes one of the ports.
func (p *ports) next() int {
	n := p.numbers[0]
	p.numbers = p.numbers[1:]
	return n
}

func (p *ports) release() {
	for _, r := range p.releases {
		r()
	}
	p.releases = nil
}
