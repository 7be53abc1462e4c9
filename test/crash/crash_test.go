// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"
)

// leastWrites is the number of writes that must be acknowledged in each round.
const leastWrites = 20

// attack is a cluster that is killed repeatedly while clients write, and the writes that were
// acknowledged.
type attack struct {
	dir      string
	random   *rand.Rand
	ledger   *ledger
	pods     []string // of the Deployment that is not changed
	replicas int32    // of the scaled Deployment, as acknowledged
	asked    int32    // as last requested: it may have been stored
	slowest  time.Duration
}

// begin starts a new cluster in dir.
func begin(t *testing.T, dir string, random *rand.Rand) (*attack, *server) {
	t.Helper()
	a := &attack{dir: dir, random: random, ledger: newLedger(), replicas: 3, asked: 3}
	s := serve(t, dir)
	s.mustBeReady(t)
	client := s.client(t)
	if err := deploy(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	var err error
	if a.pods, err = running(t.Context(), client, steady); err != nil {
		t.Fatal(err)
	}
	return a, s
}

// round writes until end kills the cluster, restarts it and checks it.
func (a *attack) round(t *testing.T, s *server, number int, end func(*server)) *server {
	t.Helper()
	client := s.client(t)
	running := a.ledger.write(client, a.random, number)
	a.asked = int32(1 + a.random.IntN(6))
	a.replicas = scale(t.Context(), client, a.replicas, a.asked)
	before := a.ledger.count()
	for waited := time.Now(); a.ledger.count() < before+leastWrites && time.Since(waited) < *within; {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(moment(a.random, 0, 3*time.Second))
	end(s)
	running.stop()

	s = serve(t, a.dir)
	took := s.mustBeReady(t)
	a.slowest = max(a.slowest, took)
	if err := a.check(t.Context(), s.client(t)); err != nil {
		t.Fatalf("round %d: %v", number, err)
	}
	t.Logf("round %d: ready in %v, %d writes acknowledged so far", number, took.Round(time.Millisecond), a.ledger.writes)
	return s
}

// check verifies the cluster as soon as it is ready again, and a moment later.
func (a *attack) check(ctx context.Context, client kubernetes.Interface) error {
	if err := a.ledger.check(ctx, client); err != nil {
		return err
	}
	if a.asked != a.replicas {
		a.replicas = scale(ctx, client, a.replicas, a.asked)
	}
	if err := errors.Join(settled(ctx, client, steady, 3), settled(ctx, client, scaled, a.replicas)); err != nil {
		return err
	}
	pods, err := running(ctx, client, steady)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(a.pods, pods); diff != "" {
		return fmt.Errorf("pods of the unchanged Deployment were replaced:\n%s", diff)
	}
	return nil
}

// done checks that the attack interrupted enough writes.
func (a *attack) done(t *testing.T, ends int) {
	t.Helper()
	if a.ledger.writes < leastWrites*ends {
		t.Errorf("only %d writes in %d rounds: not enough load", a.ledger.writes, ends)
	}
	t.Logf("%d rounds, %d acknowledged writes, slowest start %v", ends, a.ledger.writes, a.slowest.Round(time.Millisecond))
}

// TestKilled sends SIGKILL at random moments under load. After a restart in bounded time every
// acknowledged write is present, and no pod was restarted or duplicated.
func TestKilled(t *testing.T) {
	ends := 1
	if long() {
		ends = *rounds
	}
	a, s := begin(t, filepath.Join(t.TempDir(), "data"), drawn(1))
	for number := range ends {
		s = a.round(t, s, number, (*server).kill)
	}
	a.done(t, ends)
}

// TestPowerLoss cuts the power under load: the disk loses unsynced data, and sometimes keeps half of
// the pages of a write in progress.
func TestPowerLoss(t *testing.T) {
	if !long() {
		t.Skip("KINDRED_CRASH is not set")
	}
	d := newDisk(t)
	a, s := begin(t, d.data(), drawn(2))
	for number := range *rounds {
		tear := a.random.IntN(2) == 0
		alive := a.random.IntN(2) == 0
		s = a.round(t, s, number, func(s *server) {
			if alive {
				s.pause(t)
			} else {
				s.kill()
			}
			if tear {
				d.tear(t, a.random)
			}
			d.cut(t)
			if alive {
				s.proceed(t)
				if err := s.endsByItself(); err != nil {
					t.Errorf("round %d: %v", number, err)
				}
			}
			s.kill()
			d.unplug(t)
			d.plugIn(t)
		})
	}
	s.kill() // the disk is removed next
	a.done(t, *rounds)
}

// TestPowerLossDuringStart cuts the power while a cluster starts, on an empty disk and on one that
// was written to. The next start gets ready in bounded time.
func TestPowerLossDuringStart(t *testing.T) {
	if !long() {
		t.Skip("KINDRED_CRASH is not set")
	}
	random := drawn(3)
	for number := range *rounds {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			d := newDisk(t)
			var took []time.Duration
			for range 1 + random.IntN(3) {
				s := serve(t, d.data())
				time.Sleep(moment(random, 10*time.Millisecond, 2*time.Second))
				if random.IntN(2) == 0 {
					s.kill()
				}
				d.cut(t)
				s.kill()
				d.unplug(t)
				d.plugIn(t)
			}
			for range 2 {
				s := serve(t, d.data())
				took = append(took, s.mustBeReady(t).Round(time.Millisecond))
				s.kill()
			}
			t.Logf("ready in %v", took)
		})
	}
}
