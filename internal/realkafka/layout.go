package realkafka

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// layOut writes the folders of all nodes anew.
func layOut(ctx context.Context, h home, i install, s *state) error {
	if err := os.RemoveAll(h.dir); err != nil {
		return err
	}
	for _, n := range s.all() {
		if err := os.MkdirAll(n.Dir, 0o755); err != nil {
			return err
		}
	}
	if s.Options.Secure {
		if err := makeCerts(filepath.Join(h.dir, "certs"), time.Now()); err != nil {
			return err
		}
	}
	if z := s.ZooKeeper; z != nil {
		if err := os.WriteFile(z.config(), []byte(zooKeeperProperties(z)), 0o600); err != nil {
			return err
		}
	}
	for _, n := range s.Nodes {
		if err := os.WriteFile(n.config(), []byte(serverProperties(h.dir, s, n, i.version)), 0o600); err != nil {
			return err
		}
		if err := layData(ctx, h, i, s, n); err != nil {
			return err
		}
	}
	return nil
}

// layData gives a broker the data that it wants to find at its first start.
func layData(ctx context.Context, h home, i install, s *state, n *node) error {
	if i.version.zooKeeper() {
		return os.WriteFile(filepath.Join(n.Dir, "log4j.properties"), []byte(log4j), 0o644)
	}
	from, err := i.template(ctx, s.Options, h.output)
	if err != nil {
		return err
	}
	return copyTemplate(from, n, s.ClusterID)
}
