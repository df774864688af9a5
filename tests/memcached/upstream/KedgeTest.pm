package KedgeTest;

# Loaded before each test, from the directory above t/: memcached's t/lib/MemcachedTest.pm, with these differences.
use strict;
use warnings;

use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_RCVTIMEO);

# The number of seconds after which a read that gets nothing ends.
use constant READ_SECONDS => 5;

require "./t/lib/MemcachedTest.pm";
$INC{"MemcachedTest.pm"} = "./t/lib/MemcachedTest.pm";

no warnings "redefine";

# The text of memcached's -h, in which tests look for the names of optional features: Kedge has none of them. The original
# starts the server for it before each connection.
*MemcachedTest::print_help = sub { "" };

# The original takes ports that the system also gives to connections, and the server may find its port in use. These are below.
*MemcachedTest::free_port = sub {
    my $type = shift || "tcp";
    while (1) {
        my $port = 20000 + int(rand(10000));
        my $sock = IO::Socket::INET->new(
            LocalAddr => "127.0.0.1", LocalPort => $port, Proto => $type, ReuseAddr => 1);
        return $port if $sock;
    }
};

# memcached's debug build moves its clock; a server of Kedge has the real one.
*MemcachedTest::mem_move_time = sub {
    my ($sock, $seconds) = @_;
    MemcachedTest::sleep($seconds);
};

# The original waits for END also after an error.
*MemcachedTest::mem_stats = sub {
    my ($sock, $group) = @_;
    print $sock $group ? "stats $group\r\n" : "stats\r\n";
    my $stats = {};
    while (my $line = <$sock>) {
        last if $line =~ /^(END|ERROR|CLIENT_ERROR|SERVER_ERROR)/;
        $stats->{$2} = $3 if $line =~ /^(STAT|ITEM) (\S+)\s+([^\r\n]+)/;
    }
    return $stats;
};

# A test that expects more lines than it gets continues.
for my $name (qw(sock new_sock)) {
    my $original = Memcached::Handle->can($name);
    no strict "refs";
    *{"Memcached::Handle::$name"} = sub {
        my $sock = $original->(@_);
        setsockopt($sock, SOL_SOCKET, SO_RCVTIMEO, pack("l!l!", READ_SECONDS, 0)) if $sock;
        return $sock;
    };
}

1;
