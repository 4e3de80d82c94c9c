package local

// A List is in order. What is inserted belongs at its end, as a rule, as deadlines
// do unless AckWait was made shorter.
type List[E Element[E]] struct{ first, last E }

// An Element of a List is a pointer to something that has Links.
type Element[E any] interface {
	comparable
	Place() *Links[E]
	Before(E) bool
}

// Links are what a List keeps of an element, which embeds them.
type Links[E any] struct{ before, after E }

// Place returns the links themselves, for the List.
func (l *Links[E]) Place() *Links[E] { return l }

// After returns the element after this one, or nil.
func (l *Links[E]) After() E { return l.after }

// Front returns the first element, or nil.
func (l *List[E]) Front() E { return l.first }

// Has reports whether an element is in this list; it is in no other.
func (l *List[E]) Has(e E) bool {
	var none E
	return e.Place().before != none || l.first == e
}

// Insert puts an element in its place, which is behind those that it is not before.
func (l *List[E]) Insert(e E) {
	var none E
	at := l.last
	for at != none && e.Before(at) {
		at = at.Place().before
	}
	x := e.Place()
	x.before = at
	if at == none {
		x.after, l.first = l.first, e
	} else {
		x.after, at.Place().after = at.Place().after, e
	}
	if x.after == none {
		l.last = e
	} else {
		x.after.Place().before = e
	}
}

// Remove takes an element out, if it is in the list.
func (l *List[E]) Remove(e E) {
	var none E
	if !l.Has(e) {
		return
	}
	x := e.Place()
	if x.before == none {
		l.first = x.after
	} else {
		x.before.Place().after = x.after
	}
	if x.after == none {
		l.last = x.before
	} else {
		x.after.Place().before = x.before
	}
	*x = Links[E]{}
}
