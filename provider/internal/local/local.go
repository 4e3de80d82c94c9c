// Package local has what is common to providers that keep the state of their
// subscriptions in the process of the members: the line of Receives that wait, and
// the order of what is held and of what waits to be due.
//
// Nothing here locks: everything is under the mutex of its subscription.
package local

// A Queue is a heap, for package container/heap, of what is first before the others.
type Queue[I interface{ Before(I) bool }] []I

// Len implements heap.Interface, and so do the others.
func (q Queue[I]) Len() int           { return len(q) }
func (q Queue[I]) Less(i, j int) bool { return q[i].Before(q[j]) }
func (q Queue[I]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *Queue[I]) Push(x any)        { *q = append(*q, x.(I)) }
func (q *Queue[I]) Pop() any {
	old := *q
	it := old[len(old)-1]
	clear(old[len(old)-1:])
	*q = old[:len(old)-1]
	return it
}
