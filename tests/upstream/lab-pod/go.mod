module lab-pod

go 1.26
