package realkafka

import "fmt"

// ports are free ports of 127.0.0.1 that stay reserved until release.
type ports struct {
	numbers  []int
	releases []func()
}

// reservePorts takes n different ports. Nobody else gets one of them until
// they are released, where the system allows that (Linux).
func reservePorts(n int) (*ports, error) {
	p := &ports{}
	for range n {
		number, release, err := holdPort()
		if err != nil {
			p.release()
			return nil, fmt.Errorf("reserve a port of 127.0.0.1: %w", err)
		}
		p.numbers = append(p.numbers, number)
		p.releases = append(p.releases, release)
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
