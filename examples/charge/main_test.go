package main

// What the program prints, whatever the moment.
func Example() {
	main()
	// Output:
	// with the inbox transaction, charges: 1
	// without the inbox transaction, charges: 3
}
