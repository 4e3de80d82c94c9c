package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The process that TestKilled kills is this test, run again as the program.
const roleVariable = "CATCHMENT_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "" {
		os.Exit(m.Run())
	}
	main()
}

var agree = regexp.MustCompile(`the sums agree: (\d+) orders of (\d+) cents are stored, (\d+) of (\d+) are booked\n`)

// agreed returns how many orders the program said it has.
func agreed(t *testing.T, output string) int {
	t.Helper()
	m := agree.FindStringSubmatch(output)
	if m == nil || m[1] != m[3] || m[2] != m[4] {
		t.Fatalf("the sums do not agree:\n%s", output)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSumsAgree(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-dir", dir, "-n", "50"}, &out); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		if n := agreed(t, out.String()); n != 50*(i+1) {
			t.Errorf("%d orders after run %d, want %d", n, i+1, 50*(i+1))
		}
		if before := "50 orders are here from before"; i == 1 && !strings.Contains(out.String(), before) {
			t.Errorf("the output has no %q:\n%s", before, &out)
		}
	}
}

// TestOrderedAgain has a customer send an order twice.
func TestOrderedAgain(t *testing.T) {
	s, err := open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	for range 2 {
		if err := s.place(t.Context(), Order{ID: "1", Item: "tea", Cents: 250}); err != nil {
			t.Fatal(err)
		}
	}
	if stats, err := s.outbox.Stats(t.Context()); err != nil || stats.Pending != 1 {
		t.Errorf("%+v, %v: want one event", stats, err)
	}
	if orders, _, err := s.sums(t.Context()); err != nil || orders != (sum{1, 250}) {
		t.Errorf("orders %+v, %v; want one of 250 cents", orders, err)
	}
}

// TestKilled kills the program at random points, with SIGKILL, and starts it
// again. The last run finishes.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	start := func(orders int) (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		c := exec.Command(os.Args[0], "-dir", dir, "-n", strconv.Itoa(orders))
		c.Env = append(os.Environ(), roleVariable+"=shop")
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, &out
	}
	stored := 0
	for range 5 {
		c, _ := start(1_000_000)
		// It has begun: there are orders more than before.
		began := time.Now()
		for n := stored; n <= stored; n = ordersIn(dir) {
			if time.Since(began) > 30*time.Second {
				t.Fatal("no orders after 30 s")
			}
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		_ = c.Process.Kill()
		_ = c.Wait()
		stored = ordersIn(dir)
	}
	c, out := start(20)
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := agreed(t, out.String()); n != stored+20 {
		t.Errorf("%d orders, want the %d from before and 20", n, stored)
	}
	if before := fmt.Sprintf("%d orders are here from before", stored); !strings.Contains(out.String(), before) {
		t.Errorf("the output has no %q:\n%s", before, out)
	}
	t.Logf("%s", out)
}

// ordersIn returns how many orders are stored, or 0 if that cannot be told.
func ordersIn(dir string) (n int) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return 0
	}
	defer db.Close()
	_ = db.QueryRow(`SELECT count(*) FROM orders`).Scan(&n)
	return n
}
