package ledger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catchment-events/catchment/provider/ledger"
	"github.com/catchment-events/catchment/provider/ledger/queue"
)

// otherNames returns names of a directory that are not its first.
func otherNames(t *testing.T, dir string) map[string]string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "link")
	want(t, os.Symlink(dir, link))
	t.Chdir(filepath.Dir(dir))
	return map[string]string{"relative": filepath.Base(dir), "link": link, "dotted": dir + "/../" + filepath.Base(dir), "slash": dir + "/"}
}

// TestOneBrokerByEachName opens a directory that is open by other names for it.
// That fails, and takes nothing from who has it.
func TestOneBrokerByEachName(t *testing.T) {
	dir := t.TempDir()
	b, err := ledger.Open(dir, nil)
	want(t, err)
	publish(t, b, "a")
	for how, name := range otherNames(t, dir) {
		if second, err := ledger.Open(name, nil); err == nil {
			t.Errorf("%s: opened twice", how)
			_ = second.Close()
		}
	}
	publish(t, b, "b")
	want(t, b.Close())
	for how, name := range otherNames(t, dir) {
		b, err := ledger.Open(name, nil)
		if err != nil {
			t.Errorf("%s, after Close: %v", how, err)
			continue
		}
		want(t, b.Close())
	}
}

// TestOneQueueByEachName is the same for a queue.
func TestOneQueueByEachName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "deep")
	q, err := queue.Open(dir, nil)
	want(t, err)
	for how, name := range otherNames(t, dir) {
		if second, err := queue.Open(name, nil); err == nil {
			t.Errorf("%s: opened twice", how)
			_ = second.Close()
		}
	}
	want(t, q.Append(t.Context(), queue.Record{Data: []byte("a")}))
	want(t, q.Close())
}

// TestFormatOfNoVersion opens directories whose format no version writes.
func TestFormatOfNoVersion(t *testing.T) {
	dir := t.TempDir()
	b, err := ledger.Open(dir, nil)
	want(t, err)
	want(t, b.Close())
	for _, text := range []string{"catchment ledger 0\n", "catchment ledger -1\n", "catchment ledger 1\nnew", "catchment ledger +1\n"} {
		want(t, os.WriteFile(filepath.Join(dir, "FORMAT"), []byte(text), 0o644))
		if b, err := ledger.Open(dir, nil); err == nil {
			t.Errorf("a directory that says %q was opened", text)
			want(t, b.Close())
		}
	}
}

// TestLockThatCannotBeMade opens a directory that nobody can have: the error does not
// say that somebody has it.
func TestLockThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	want(t, os.Mkdir(dir+"/LOCK", 0o755))
	if _, err := ledger.Open(dir, nil); err == nil || strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open: %v, want an error that names what cannot be made", err)
	}
}
